"""The blocking client against a node of sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from klamm.client.blocking import NodeClient
from klamm.client.errors import ClientError, ClientTimeout, ConnectionClosed, UnexpectedResponse
from klamm.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from klamm.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from klamm.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.protocol.messages.produce import ProduceRequest

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
Start = Callable[[Callable[[Any], "bytes | None"]], Any]


def heartbeats(asked: Any) -> bytes | None:
    """Knows Heartbeat up to v2 and answers with the correlation id as error code."""
    if asked.api_key == 18:
        keys = [ApiVersion(api_key=12, min_version=0, max_version=2)]
        answer: bytes = asked.answer(ApiVersionsResponse(api_keys=keys))
    else:
        answer = asked.answer(HeartbeatResponse(error_code=asked.correlation_id))
    return answer


def test_versions_are_asked_once_and_the_highest_common_is_used(start_node: Start) -> None:
    node = start_node(heartbeats)
    with NodeClient(node.host, node.port, client_id="me") as client:
        assert client.request(HEARTBEAT).error_code == 1
        assert client.request(HEARTBEAT).error_code == 2
    assert [(asked.api_key, asked.version) for asked in node.asked] == [
        (18, ApiVersionsRequest.versions[1]),
        (12, 2),
        (12, 2),
    ]
    assert node.asked[1].client_id == "me"


def test_versions_are_asked_again_in_a_version_that_the_node_knows(start_node: Start) -> None:
    def script(asked: Any) -> Any:
        if asked.api_key == 18 and asked.version > 1:
            keys = [ApiVersion(api_key=18, min_version=0, max_version=1)]
            return asked.answer(ApiVersionsResponse(error_code=35, api_keys=keys), 0)
        return heartbeats(asked)

    node = start_node(script)
    with NodeClient(node.host, node.port) as client:
        assert client.choose_version(HeartbeatRequest) == 2
    assert [asked.version for asked in node.asked] == [ApiVersionsRequest.versions[1], 1]


def test_a_given_version_is_used_without_asking(start_node: Start) -> None:
    node = start_node(heartbeats)
    with NodeClient(node.host, node.port) as client:
        client.request(HEARTBEAT, 4)
    assert [(asked.api_key, asked.version) for asked in node.asked] == [(12, 4)]


def test_sent_requests_are_answered_in_order(start_node: Start) -> None:
    node = start_node(heartbeats)
    with NodeClient(node.host, node.port) as client:
        for _ in range(5):
            assert client.send(HEARTBEAT, 0)
        assert [client.receive().error_code for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(ClientError, match="no request is in flight"):
            client.receive()


def test_produce_without_acks_gives_none(start_node: Start) -> None:
    node = start_node(lambda asked: b"" if asked.api_key == 0 else heartbeats(asked))
    with NodeClient(node.host, node.port) as client:
        assert client.request(ProduceRequest(acks=0), 9) is None
        assert client.request(HEARTBEAT, 0).error_code == 1


def test_a_response_is_read_into_memory_of_the_caller(start_node: Start) -> None:
    answer = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=0, records=b"abc")])]
    )
    node = start_node(lambda asked: asked.answer(answer))
    memory = bytearray(b"." * 200)
    with NodeClient(node.host, node.port) as client:
        client.send(FetchRequest(), 4)
        records = client.receive_into(lambda size: memoryview(memory)[:size]).responses[0].partitions[0].records
        assert records == b"abc"
        memory[memory.index(b"abc")] = ord("x")
        assert records == b"xbc"


def test_a_frame_of_impossible_size_closes_the_connection(start_node: Start) -> None:
    node = start_node(lambda asked: b"\xff\xff\xff\xff")
    client = NodeClient(node.host, node.port)
    client.send(HEARTBEAT, 0)
    with pytest.raises(UnexpectedResponse, match="frame size -1"):
        client.receive_into(lambda size: memoryview(bytearray(size)))
    with pytest.raises(ConnectionClosed, match="was closed"):
        client.connect()


def test_a_connection_that_the_node_closes_is_an_error_and_stays_closed(start_node: Start) -> None:
    node = start_node(lambda asked: None)
    client = NodeClient(node.host, node.port)
    with pytest.raises(ConnectionClosed):
        client.request(HEARTBEAT, 0)
    with pytest.raises(ConnectionClosed, match="was closed"):
        client.request(HEARTBEAT, 0)


def test_a_response_that_is_none_closes_the_connection(start_node: Start) -> None:
    node = start_node(lambda asked: b"\0\0\0\3abc")
    client = NodeClient(node.host, node.port)
    with pytest.raises(UnexpectedResponse):
        client.request(HEARTBEAT, 0)
    with pytest.raises(ConnectionClosed, match="was closed"):
        client.connect()


def test_a_request_times_out_as_a_whole(start_node: Start) -> None:
    """Each look at the clock is a second later: the trickle of bytes does not restart the time that is left."""
    node = start_node(lambda asked: b"\0\0\0\3")
    seconds = iter(range(1000))
    with NodeClient(node.host, node.port, timeout_s=5.5, monotonic=lambda: float(next(seconds))) as client:
        with pytest.raises(ClientTimeout):
            for _ in range(10):
                client.request(HEARTBEAT, 0, timeout_s=2.5)
        with pytest.raises(ConnectionClosed):
            client.request(HEARTBEAT, 0)


def test_no_listener_is_a_closed_connection() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening
        with pytest.raises(ConnectionClosed, match="connect"):
            NodeClient(*unused.getsockname()).connect()
