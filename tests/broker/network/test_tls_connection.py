"""What holds for connections holds over TLS, too: tests of the plain ones again, where they are not about system calls.

Each fixture decides the protocol version; clients are Python's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import pytest

from klamm.broker.security.tls.endpoint import TlsEndpoint, open_endpoint
from tests.broker.network import harness, test_connection, test_send_queue
from tests.broker.network.harness import node, run
from tests.broker.security.tls.tls_config import settings_of
from tests.support.certificates import Authority

AUTHORITY = Authority()
SAME = (
    test_connection.test_5000_pipelined_requests_are_answered_in_order,
    test_connection.test_a_pending_response_holds_back_all_later_ones,
    test_connection.test_produce_goes_ahead_of_unacknowledged_produce_and_answers_stay_in_order,
    test_connection.test_produce_in_flight_is_bounded,
    test_connection.test_requests_without_a_reply_are_skipped,
    test_connection.test_a_slow_reader_is_muted_and_others_are_served,
    test_connection.test_a_huge_frame_comes_whole_and_its_memory_goes,
    test_connection.test_a_busy_connection_leaves_turns_to_others,
    test_connection.test_a_refusal_closes_after_the_replies_before_it,
    test_connection.test_half_a_frame_has_a_deadline_that_only_real_progress_moves,
    test_connection.test_an_idle_connection_is_closed_and_a_waiting_one_is_not,
    test_connection.test_a_connection_that_goes_cancels_its_waits_but_not_its_tasks,
    test_connection.test_a_connection_that_goes_does_not_wait_for_the_budget,
    test_connection.test_request_bytes_of_the_node_are_bounded,
    test_connection.test_local_address_and_peer,
    test_connection.test_drain_answers_what_was_read_and_then_closes,
)
SAME_WITH_FILES = (
    test_send_queue.test_regions_and_memory_leave_in_order,
    test_send_queue.test_a_slow_reader_of_regions_gets_all_and_costs_no_memory,
)


def endpoint(**config: str) -> TlsEndpoint:
    leaf = AUTHORITY.server()
    texts = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": leaf.key_pem.decode(),
        "ssl.keystore.certificate.chain": leaf.chain_pem.decode(),
    }
    return open_endpoint(
        settings_of({**texts, **{key.replace("_", "."): value for key, value in config.items()}}), _no_file
    )


def _no_file(path: str) -> bytes:
    raise AssertionError(path)


@pytest.fixture(params=["TLSv1.2", "TLSv1.3"])
def over_tls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nodes and clients of the harness speak TLS."""
    ours, make = endpoint(ssl_enabled_protocols=request.param), harness.Node

    def node_with_tls(*arguments: Any) -> harness.Node:
        one = make(*arguments[:2], ours)
        one.client_context = AUTHORITY.client_context()
        return one

    monkeypatch.setattr(harness, "Node", node_with_tls)
    yield


@pytest.fixture
def log() -> Iterator[BinaryIO]:
    yield from test_send_queue.log.__wrapped__()  # type: ignore[attr-defined]


@pytest.mark.parametrize("test", SAME)
def test_over_tls(over_tls: None, test: Any) -> None:
    test()


@pytest.mark.parametrize("test", SAME_WITH_FILES)
def test_files_over_tls(over_tls: None, test: Any, log: BinaryIO) -> None:
    test(log)


def test_the_peer_says_and_gets_close_notify() -> None:
    async def main() -> None:
        async with node(tls=endpoint()) as one:
            one.client_context = AUTHORITY.client_context()
            client = await one.connect()
            assert await client.ask(b"echo a") == b"echo a"
            client.send(b"refuse")
            assert await client.at_end()  # raises ssl.SSLError without close_notify
            assert one.network.counters.handshakes == {("TLSv1.3", "TLS_AES_256_GCM_SHA384"): 1}

    run(main())
