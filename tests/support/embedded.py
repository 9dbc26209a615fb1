"""A whole broker inside the test process, without sockets: requests go through the codecs and the dispatcher.

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        response = broker.call(ProduceRequest(...), version=9)

`call` runs the loop until the answer is there; `start` gives the future instead. Closing is a clean shutdown; `crash`
leaves everything as it is on disk, as far as a process that is still alive can.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from klamm.broker.apis.dispatcher import Dispatcher
from klamm.broker.broker import Broker
from klamm.broker.network.response import CloseConnection, PendingResponse, RequestMemo, Response
from klamm.broker.server import Server
from klamm.config.broker_config import BrokerConfig
from klamm.protocol.apis import API, ApiKey, response_class
from klamm.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import Record, encode_batch
from klamm.storage.filesystem import OsFilesystem
from tests.support.manual_clock import ManualClock

CORRELATION_ID = 7
NOW_MS = 1_700_000_000_000


class FakeConnection:
    """The parts of a connection that handlers look at."""

    def __init__(self) -> None:
        self.local_address = ("127.0.0.1", 9092)
        self.peer = ("127.0.0.1", 40000)
        self.listener = "PLAINTEXT"
        self.principal = "User:ANONYMOUS"
        self.is_token_login = False
        self.client_software = ("", "")
        self.memo: RequestMemo | None = None
        self.closed = False
        self.throttled_ms: list[int] = []

    def throttle(self, delay_ms: int) -> None:
        self.throttled_ms.append(delay_ms)

    @contextmanager
    def cancelled_on_close(self, wait: asyncio.Future[Any]) -> Iterator[None]:
        yield

    def keep_frame(self) -> bool:
        return False


class EmbeddedBroker:
    """See the module's head. ``config`` has overrides in Kafka's names; time stands still unless a test moves it."""

    def __init__(self, path: Path, config: Mapping[str, object] | None = None) -> None:
        originals = {"log.dirs": str(path / "data"), "node.id": "1"}
        originals |= {name: str(value) for name, value in (config or {}).items()}
        self.config = BrokerConfig(originals)
        self.clock = ManualClock(wall_ms=NOW_MS)
        self.filesystem = OsFilesystem()
        self.connection = FakeConnection()
        self.loop = asyncio.new_event_loop()
        self.broker: Broker
        self._server: Server
        self._dispatcher: Dispatcher

    def __enter__(self) -> Self:
        self._server = Server(self.config, clock=self.clock, filesystem=self.filesystem)
        self._server.open()
        self.broker = self._server.wire()
        self._dispatcher = Dispatcher(self.broker)
        self.run(self.broker.controller.finish_deletions())
        self.run(self.broker.log_dir_mover.resume())
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.groups.close()
        self.broker.transactions.close()
        self.run(self.broker.log_dir_mover.stop())
        self.run(self.broker.flusher.drain())
        self.run(self.broker.partitions.removed())
        self._server.close()
        self.loop.close()

    def crash(self) -> None:
        """Release the locks without any of the marks of a shutdown."""
        self.broker.groups.close()
        self.broker.transactions.close()
        self._server.crash()
        self.loop.close()

    def run(self, awaitable: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await awaitable

        return self.loop.run_until_complete(asyncio.wait_for(wait(), 30))

    def start(self, request: Any, version: int, *, client_id: str | None = "test") -> asyncio.Future[Any]:
        """Dispatch now; the future gives the decoded response (None without one), or raises CloseConnection."""

        async def go() -> Any:
            return self._dispatcher(self.connection, encode_frame(request, version, client_id))  # type: ignore[arg-type]

        answer = self.run(go())

        async def decoded() -> Any:
            reply = await answer.future if isinstance(answer, PendingResponse) else answer
            return decode_reply(reply, request.api_key, version)

        return asyncio.ensure_future(decoded(), loop=self.loop)

    def call(self, request: Any, version: int, *, client_id: str | None = "test") -> Any:
        return self.run(self.start(request, version, client_id=client_id))

    def dispatch(self, frame: bytes) -> Response | None:
        """A raw frame, without its size."""

        async def go() -> Any:
            answer = self._dispatcher(self.connection, memoryview(bytearray(frame)))  # type: ignore[arg-type]
            return await answer.future if isinstance(answer, PendingResponse) else answer

        reply: Response | None = self.run(go())
        return reply

    # -- first steps of most tests

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None) -> bytes:
        """Create a topic; return its id."""
        configs = [CreatableTopicConfig(name=key, value=str(value)) for key, value in (config or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
        )
        response = self.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        assert response.topics[0].error_code == 0, response
        topic_id: bytes = response.topics[0].topic_id
        return topic_id

    def produce(self, topic: str, records: bytes, *, partition: int = 0, version: int = 9, acks: int = -1) -> Any:
        """Produce to one partition; returns its part of the response."""
        data = [PartitionProduceData(index=partition, records=records)]
        request = ProduceRequest(
            acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        )
        response = self.call(request, version)
        return None if response is None else response.responses[0].partition_responses[0]


def batch(*values: bytes, timestamp: int = NOW_MS, **options: Any) -> bytes:
    """One record batch with these values and a key each."""
    return bytes(
        encode_batch([Record(offset, timestamp, b"k", value, ()) for offset, value in enumerate(values)], **options)
    )


def encode_frame(request: Any, version: int, client_id: str | None = "test") -> memoryview:
    """Return the frame of a request as a connection passes it to the dispatcher."""
    info = API[request.api_key]
    name = client_id.encode() if client_id is not None else b""
    head = struct.pack(">hhih", request.api_key, version, CORRELATION_ID, len(name) if client_id is not None else -1)
    out = bytearray(head + name)
    if info.first_flexible_version is not None and version >= info.first_flexible_version:
        out.append(0)
    type(request).encode[version](request, out)
    return memoryview(out)


def decode_reply(reply: Response | None, api_key: int, version: int) -> Any:
    """The response in a reply, its file regions read in."""
    if reply is None:
        return None
    data, last = bytearray(), 0
    for position, region in reply.regions or []:
        data += reply.head[last:position] + region.read()
        last = position
    data += reply.head[last:]
    size, correlation_id = struct.unpack_from(">ii", data)
    assert size == len(data) - 4 and correlation_id == CORRELATION_ID
    info = API[api_key]
    flexible = info.first_flexible_version is not None and version >= info.first_flexible_version
    position = 9 if flexible and api_key != ApiKey.API_VERSIONS else 8
    response, end = response_class(api_key).decode[version](memoryview(data), position)
    assert end == len(data)
    return response


__all__ = ["CloseConnection", "EmbeddedBroker", "batch", "decode_reply", "encode_frame"]
