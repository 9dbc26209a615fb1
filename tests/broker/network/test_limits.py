"""Settings and counts, without sockets."""

from __future__ import annotations

import resource

import pytest

from klamm.broker.network.limits import (
    ConnectionQuota,
    ListenerLimits,
    NetworkLimits,
    RequestBudget,
    look_up,
    look_up_known,
    names_in,
    parse_overrides,
    plain_address,
    raise_descriptor_limit,
)
from klamm.config.broker_config import BrokerConfig


def test_limits_come_from_the_config_and_default_otherwise() -> None:
    limits = NetworkLimits.from_config(
        {"max.connections": 7, "max.connections.per.ip.overrides": "127.0.0.1:3,::1:4", "queued.max.request.bytes": 9}
    )
    assert limits.max_connections == 7
    assert limits.max_connections_per_ip_overrides == {"127.0.0.1": 3, "::1": 4}
    assert limits.queued_max_request_bytes == 9
    assert limits.max_request_bytes == 104857600
    assert limits.max_idle_ms == 600_000


def test_socket_buffers_are_left_to_the_kernel_unless_set() -> None:
    class Config(dict[str, object]):
        def is_set(self, name: str) -> bool:
            return name == "socket.send.buffer.bytes"

    limits = NetworkLimits.from_config(
        Config({"socket.send.buffer.bytes": 1, "socket.receive.buffer.bytes": 2, "socket.listen.backlog.size": 50})
    )
    assert (limits.send_buffer_bytes, limits.receive_buffer_bytes, limits.backlog) == (1, -1, 1024)


def test_listener_limits_have_the_prefix_of_the_listener() -> None:
    originals = {"listener.name.external.max.connections": "5", "listener.name.external.connections.max.idle.ms": "100"}
    assert ListenerLimits.from_config(originals, "EXTERNAL") == ListenerLimits(5, 100)
    assert ListenerLimits.from_config(originals, "INTERNAL") == ListenerLimits()


def test_dynamic_limits_of_a_listener_count() -> None:
    key = "listener.name.plaintext.max.connections"
    static = BrokerConfig({key: "5"})
    assert ListenerLimits.from_config(static, "PLAINTEXT").max_connections == 5
    assert ListenerLimits.from_config(static.with_dynamic({key: "6"}, {}), "PLAINTEXT").max_connections == 6


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:x", ":5", "127.0.0.1:-1"])
def test_wrong_overrides_name_the_key(text: str) -> None:
    with pytest.raises(ValueError, match=r"max\.connections\.per\.ip\.overrides"):
        parse_overrides(text)


def test_overrides_are_addresses_and_names_and_take_lists() -> None:
    assert parse_overrides(["[::1]:2", "Some.Host:3"]) == {"::1": 2, "Some.Host": 3}
    assert names_in(parse_overrides("10.0.0.7:1,a.host:2")) == ["a.host"]
    assert parse_overrides("") == {}


def test_a_name_stands_for_its_addresses() -> None:
    assert "127.0.0.1" in look_up("localhost")
    limits = NetworkLimits(max_connections_per_ip_overrides={"a.host": 1})
    quota = ConnectionQuota(limits)
    quota.set_addresses({"a.host": ["10.0.0.1", "::1"]})
    assert quota.admit("10.0.0.1") and quota.admit("::1")
    assert not quota.admit("10.0.0.1") and not quota.admit("::1")
    quota.change_limits(NetworkLimits(max_connections_per_ip_overrides={"10.0.0.9": 1}))
    assert quota.admit("10.0.0.1")


@pytest.mark.parametrize("name", ["nosuch.invalid", "a" * 64 + ".invalid", "a..b"])
def test_a_name_without_addresses_is_one_line_of_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert look_up_known([name]) == {}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert name in caplog.text


def test_a_forgotten_waiter_is_not_called_back() -> None:
    woken = []

    def resume() -> None:
        woken.append("gone")

    budget = RequestBudget(10)
    assert budget.change(0, 10, lambda: None) and not budget.change(0, 1, resume)
    budget.forget(resume)
    assert budget.waiting_count == 0
    assert budget.change(10, 0, lambda: None)
    assert woken == []


def test_an_ipv4_peer_of_a_dual_stack_socket_is_plain() -> None:
    assert plain_address("::ffff:10.1.2.3") == "10.1.2.3"
    assert plain_address("fe80::1%eth0") == "fe80::1"
    assert plain_address("::1") == "::1"


def test_the_quota_counts_back() -> None:
    quota = ConnectionQuota(NetworkLimits(max_connections=2, max_connections_per_ip=1))
    assert quota.admit("a")
    assert not quota.admit("a")
    assert quota.admit("b")
    full = [quota.node_is_full]
    quota.release("a")
    full.append(quota.node_is_full)
    assert full == [True, False]
    assert quota.admit("a")
    assert quota.total == 2


def test_the_budget_lets_one_frame_exceed_it_and_wakes_the_waiting() -> None:
    woken = []
    budget = RequestBudget(100)
    assert budget.change(0, 150, lambda: None)
    assert not budget.change(0, 10, lambda: woken.append("b"))
    assert budget.change(150, 120, lambda: None)
    assert woken == []
    assert budget.change(120, 0, lambda: None)
    assert woken == ["b"]
    assert budget.held_bytes == 0


def test_the_descriptor_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        assert raise_descriptor_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
