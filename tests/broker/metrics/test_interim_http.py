"""Metrics while logs are recovered, before there is an event loop."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest

from klamm.broker.metrics import Metrics
from klamm.broker.metrics.interim_http import InterimHttp


def get(address: tuple[str, int], path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address[0]}:{address[1]}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_serves_while_the_block_lasts() -> None:
    metrics = Metrics()
    metrics.gauges("klamm_remaining_logs_to_recover", "Left.", lambda: [('{dir="/d"}', 3)])
    with InterimHttp(metrics, "127.0.0.1:0", "recovering the logs") as interim:
        address = interim.address
        assert address is not None
        assert get(address, "/healthz") == (200, "ok\n")
        assert get(address, "/readyz") == (503, "recovering the logs\n")
        status, text = get(address, "/metrics")
        assert status == 200 and 'klamm_remaining_logs_to_recover{dir="/d"} 3' in text
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


@pytest.mark.parametrize("listener", ["none", "nonsense"])
def test_nothing_is_served_where_nothing_is_wanted(listener: str) -> None:
    with InterimHttp(Metrics(), listener, "x") as interim:
        assert interim.address is None


def test_a_taken_port_is_no_reason_to_wait() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with InterimHttp(Metrics(), f"127.0.0.1:{taken.getsockname()[1]}", "x") as interim:
            assert interim.address is None
