"""Every number of every request that is served, at both ends of its type: answered or closed upon, never an exception.

Each (API, version) has one request that reaches deep into its handler. One number of it after the other becomes the
smallest, the largest, or one that is next to them, and goes to a real broker. Afterwards the broker starts again from
what it has stored of them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.apis.registry import HANDLERS
from klamm.protocol.apis import ApiKey, request_class
from klamm.protocol.errors import ErrorCode
from klamm.protocol.fields import FieldSpec, specs
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.messages.metadata import MetadataRequest
from tests.faults.network_cases import Broker, now_ms, one
from tests.faults.wire import SILENT, Wire, batch, frame_of
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

TOPIC = "t"
PATIENCE_S = 0.15
LAST = (ApiKey.OFFSET_DELETE, ApiKey.DELETE_GROUPS, ApiKey.DELETE_RECORDS, ApiKey.DELETE_TOPICS)
STRINGS = {
    "member_id": "", "group_instance_id": None, "instance_id": None, "key": "g",
    "coordinator_keys": "g", "groups": "g", "groups_names": "g", "group_id": "g", "config_operation": "delete",
    "protocol_type": "consumer", "resource_name": TOPIC, "value": "1",
}  # fmt: skip
NUMBERS = {
    "acks": -1, "generation_id": -1, "generation_id_or_member_epoch": -1, "member_epoch": 0, "leader_epoch": -1,
    "committed_leader_epoch": -1, "current_leader_epoch": -1, "last_fetched_epoch": -1, "replica_id": -1,
    "num_partitions": -1, "replication_factor": -1, "count": 4, "resource_type": 2, "resource_types": 2,
    "endpoint_type": 1, "session_epoch": -1,
    "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "timeout_ms": 1000, "transaction_timeout_ms": 1000,
    "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20, "max_num_offsets": 1, "log_start_offset": -1,
    "producer_id": -1, "producer_epoch": -1, "timestamp": -1, "retention_time_ms": -1, "commit_timestamp": -1,
}  # fmt: skip


class Deep:
    """Requests with names, ids and numbers of things that are there; of no producer, or of one."""

    def __init__(self, peer: Broker, topic_id: bytes, transactional_id: str | None) -> None:
        self._peer = peer
        self._topic_id = topic_id
        self._strings = STRINGS | {"transactional_id": transactional_id}
        self._numbers = dict(NUMBERS)

    def request(self, api_key: ApiKey, version: int) -> Any:
        if (transactional_id := self._strings["transactional_id"]) is not None:  # what came before has fenced it
            init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            while (made := self._peer.ask(init, 4)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                time.sleep(0.005)  # an open one is aborted first
            assert made.error_code == 0, made
            self._numbers |= {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        request = self._struct(request_class(api_key), version)
        if api_key == ApiKey.CREATE_TOPICS:
            request.topics[0].name = "new"
        elif api_key == ApiKey.CREATE_PARTITIONS:
            request.topics[0].assignments = None
        elif api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
            request.group_id, request.member_id, request.topic_partitions = "c", "m", []
            request.rack_id = request.server_assignor = request.subscribed_topic_regex = None
        elif api_key == ApiKey.DELETE_TOPICS and version >= 6:
            request.topics[0].name = None
        return request

    def _struct(self, cls: Any, version: int) -> Any:
        return cls(**{spec.name: self._field(spec, version) for spec in specs(cls) if spec.in_version(version)})

    def _field(self, spec: FieldSpec, version: int) -> Any:
        if spec.array and spec.name in ("assignments", "configs"):
            return []
        value = self._value(spec, version)
        return [value] if spec.array else value

    def _value(self, spec: FieldSpec, version: int) -> Any:
        if spec.wire is None:
            return self._struct(spec.struct, version)
        kind, form = spec.wire.kind, spec.wire.format
        if kind == "records":
            return bytes(one() if version >= 3 else batch(b"v", timestamp=now_ms()))
        if kind == "string":
            value = self._strings.get(spec.name, TOPIC)
            return value if value is not None or spec.nullable_in(version) else ""
        if kind == "bytes":
            return b""
        return {"?": False, "d": 0.0, "16s": self._topic_id}.get(form, self._numbers.get(spec.name, 0))


def at_limits(part: Any, version: int) -> Iterator[str]:
    """Set one number after the other within the struct and yield the name of its field. In the end all is as before."""
    for spec in specs(type(part)):
        if not spec.in_version(version):
            continue
        value = getattr(part, spec.name)
        if spec.wire is None:
            for inner in (value or ()) if spec.array else [value]:
                for name in at_limits(inner, version):
                    yield f"{spec.name}.{name}"
        elif type(value) is int or (spec.array and value and type(value[0]) is int):
            for number in limits(spec.wire.format):
                setattr(part, spec.name, [number] if spec.array else number)
                yield f"{spec.name}={number}"
            setattr(part, spec.name, value)


def limits(form: str) -> tuple[int, ...]:
    bits = struct.calcsize(f">{form}") * 8
    if form.isupper():
        return (1 << bits) - 1, 1 << bits - 1
    largest = (1 << bits - 1) - 1
    return -largest - 1, -2, largest - 1, largest


def test_numbers_at_their_limits_do_no_harm(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", {"offsets.topic.num.partitions": 1}) as process:
        with Broker(process.port) as peer:
            peer.prepare()
            topic_id = next(
                topic.topic_id for topic in peer.ask(MetadataRequest(topics=None), 12).topics if topic.name == TOPIC
            )
            for key_type, key in enumerate(("g", "tx")):
                assert (
                    peer.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
                    .coordinators[0]
                    .error_code
                    == 0
                )
            nobody, producer = Deep(peer, topic_id, None), Deep(peer, topic_id, "tx")
            with closing(Shooting(process)) as shooting:
                for api_key in (*(api_key for api_key in HANDLERS if api_key not in LAST), *LAST):
                    shooting.api(api_key, nobody)
                    shooting.api(api_key, producer)
        print(f"{shooting.sent} requests, {shooting.silent} of them waited")
        with Broker(process.port) as peer:
            assert peer.serves_the_next_client()
        assert process.terminate() == 0
        process.restart()
        with Broker(process.port) as peer:
            assert peer.serves_the_next_client()
            assert peer.produce(one(), topic="small") == 0
    assert "Traceback" not in process.log()


class Shooting:
    """Requests one after the other, each looked at before the next."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._wire = Wire(process.port, PATIENCE_S)
        self._seen = 0
        self.sent = self.silent = 0

    def close(self) -> None:
        self._wire.close()

    def api(self, api_key: ApiKey, deep: Deep) -> None:
        row = HANDLERS[api_key]
        for version in range(row.min_version, row.max_version + 1):
            request = deep.request(api_key, version)
            for name in at_limits(request, version):
                self._shoot(frame_of(request, version))
                log = self._process.log()
                assert "Traceback" not in log[self._seen :], f"{api_key.name} v{version} {name}\n{log[self._seen :]}"
                self._seen = len(log)

    def _shoot(self, frame: bytes) -> None:
        self._wire.send(frame)
        answer = self._wire.receive()
        self.sent += 1
        self.silent += answer == SILENT
        if isinstance(answer, str):
            self._wire.close()
            self._wire = Wire(self._process.port, PATIENCE_S)
