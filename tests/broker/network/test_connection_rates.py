"""How many connections may be made in a second, on the node, on a listener and by an address."""

from __future__ import annotations

import asyncio

import pytest

from klamm.broker.network import network
from klamm.broker.network.limits import ConnectionQuota, ListenerLimits, NetworkLimits, address_prefix
from klamm.broker.quotas.connection_rates import ConnectionRates
from klamm.broker.quotas.measure import Windows
from tests.broker.network.harness import node, run, spin, until

LOCAL = {(("ip", "127.0.0.1"),): {"connection_creation_rate": 1.0}}


def test_over_the_rate_a_connection_waits_for_a_window_at_most() -> None:
    rates = ConnectionRates(Windows())
    rates.change_limits({"": 2, "SLOW": 1})
    waits = [rates.wait_ms("FAST", 100.0, is_exempt=False) for _ in range(23)]
    assert waits == [0] * 20 + [500, 1000, 1000]
    assert [rates.wait_ms("SLOW", 100.0, is_exempt=True) for _ in range(12)] == [0] * 10 + [1000, 1000]
    rates.change_limits({"": 4})
    assert rates.wait_ms("SLOW", 100.0, is_exempt=False) == 0


def test_a_refused_connection_of_an_address_does_not_count() -> None:
    rates = ConnectionRates(Windows())
    rates.change_quotas({(("ip", None),): {"connection_creation_rate": 1.0}, **LOCAL})
    assert [rates.refused_ms("10.0.0.1", 100.0) for _ in range(13)] == [0] * 10 + [1000] * 3
    assert rates.refused_ms("10.0.0.2", 100.0) == 0
    assert rates.refused_ms("10.0.0.1", 112.0) == 0
    rates.change_quotas({})
    assert rates.refused_ms("10.0.0.1", 112.0) == 0


@pytest.mark.parametrize("of_node", [True, False])
def test_the_listener_waits_and_goes_on(of_node: bool) -> None:
    async def main() -> None:
        limits = NetworkLimits(max_connection_creation_rate=1) if of_node else None
        listener = None if of_node else ListenerLimits(max_connection_creation_rate=1)
        async with node(limits, listener) as one:
            for _ in range(10):
                assert await (await one.connect()).ask(b"echo 1") == b"echo 1"
            late, later = await one.connect(), await one.connect()
            late.send(b"echo late")
            later.send(b"echo later")
            await spin()
            assert b"echo late" not in one.seen
            one.clock.advance(12_000)
            one.listener._end_hold()
            assert await late.receive() == b"echo late"
            assert await later.receive() == b"echo later"

    run(main())


def test_a_held_connection_is_closed_with_its_listener() -> None:
    async def main() -> None:
        async with node(NetworkLimits(max_connection_creation_rate=1)) as one:
            for _ in range(10):
                await (await one.connect()).ask(b"echo 1")
            held = await one.connect()
            await until(lambda: one.listener._held is not None)
            one.listener.close()
            assert await held.at_end()

    run(main())


def test_an_address_that_is_too_fast_is_closed_after_a_while() -> None:
    async def main() -> None:
        async with node() as one:
            one.network.change_address_quotas(LOCAL)
            for _ in range(10):
                await (await one.connect()).ask(b"echo 1")
            refused = [await one.connect() for _ in range(3)]
            await until(lambda: one.network.counters.refused == 3)
            channels = list(one.network._closing_later)
            assert len(channels) == 3
            one.network._close_now(channels[0])
            assert await refused[0].at_end()
            one.network.change_address_quotas({})
            await (await one.connect()).ask(b"echo 1")

    run(main())


def test_few_refused_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "MOST_CLOSING_LATER", 2)

    async def main() -> None:
        async with node() as one:
            one.network.change_address_quotas(LOCAL)
            for _ in range(10):
                await (await one.connect()).ask(b"echo 1")
            refused = [await one.connect() for _ in range(5)]
            await until(lambda: one.network.counters.refused == 5)
            assert len(one.network._closing_later) == 2
            ends = [asyncio.ensure_future(client.at_end()) for client in refused]
            await asyncio.wait(ends[2:])
            assert [end.done() for end in ends] == [False, False, True, True, True]

    run(main())


def test_without_a_limit_nothing_is_measured() -> None:
    async def main() -> None:
        async with node() as one:
            await (await one.connect()).ask(b"echo 1")
            assert one.network.rates is None

    run(main())


def test_the_listener_between_brokers_is_not_limited_by_the_node() -> None:
    async def main() -> None:
        limits = NetworkLimits(max_connections=2, max_connection_creation_rate=1, inter_broker_listener="BETWEEN")
        async with node(limits) as one:
            between = one.network.listen("BETWEEN", "127.0.0.1", 0)
            between.start()
            first, second = await one.connect(), await one.connect()
            await first.ask(b"echo 1")
            one.sweep_after(10)
            one.sweep_after(10_000)
            await second.ask(b"echo 2")
            one.sweep_after(10)
            one.listener.address = between.address
            for _ in range(2):
                broker = await one.connect()
                assert await broker.ask(b"echo broker") == b"echo broker"
            assert await first.at_end(), "the one that was idle longest"

    run(main())


def test_ipv6_addresses_may_be_counted_by_their_network() -> None:
    assert address_prefix("2001:db8::1", 128) == "2001:db8::1"
    assert address_prefix("2001:db8::1", 64) == address_prefix("2001:db8::2:3", 64) != "2001:db8::1"
    assert address_prefix("10.0.0.1", 64) == "10.0.0.1"
    counts = ConnectionQuota(NetworkLimits(max_connections_per_ip=1, ipv6_prefix=64))
    assert counts.admit("2001:db8::1")
    assert not counts.admit("2001:db8::2")
    counts.release("2001:db8::1")
    assert counts.admit("2001:db8::2")
