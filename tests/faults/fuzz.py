"""Mutated, truncated and random frames, many thousands a second, at a real broker process.

A corpus of valid requests of every served (API, version), with values that reach deep into the handlers, is mutated
byte by byte and sent in bulk over several connections. The broker closes the connection at most mutants. The frame
after the last one answered was the cause: the next connection continues after it, so that the broker really looks at
every frame.

What must hold: no traceback in the log, a ping on another connection is answered all the time, memory stays bounded,
and the broker stops cleanly and starts again afterwards.

Frames that would only do harm by being obeyed (ten thousand partitions, all loggers at DEBUG, the topics gone that all
the others need) are left out: `allowed`.
"""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from klamm.broker.apis.registry import HANDLERS
from klamm.protocol.apis import ApiKey, request_class
from klamm.protocol.fields import FieldSpec, specs
from klamm.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from klamm.protocol.messages.api_versions import ApiVersionsRequest
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.records.batch import HEADER_BYTES, Record, seal
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.message_set import encode_set
from klamm.protocol.wire import ZERO_UUID, Malformed
from tests.faults.network_cases import Broker, batch, now_ms
from tests.faults.wire import CLOSED, SILENT, Wire, frame_of, is_flexible
from tests.support.broker_process import BrokerProcess

TOPICS = {"t": 3, "u": 1, "a.b": 2}
NAMES = [
    *TOPICS, *["t"] * 8, "nowhere", *(f"auto-{n}" for n in range(8)), "", "..", "a_b", "x" * 249, "x" * 250, "ü",
    "__consumer_offsets",
]  # fmt: skip
CONFIGS = [
    "retention.ms", "segment.bytes", "cleanup.policy", "max.message.bytes", "compression.type", "flush.messages",
    "message.timestamp.type", "min.insync.replicas", "no.such.key", "log.retention.ms", "index.interval.bytes",
]  # fmt: skip
VALUES = [
    "1",
    "-1",
    "1048576",
    "100000",
    "compact",
    "delete",
    "zstd",
    "producer",
    "LogAppendTime",
    "CreateTime",
    "junk",
    "",
]
STRINGS = {
    "name": NAMES, "topic": NAMES, "topic_names": NAMES, "resource_name": [*NAMES, "1", "2"], "value": VALUES,
    "config_operation": VALUES, "configuration_keys": CONFIGS, "feature": ["metadata.version", "group.version", "junk"],
    "transactional_id": ["", "tx"], "rack_id": ["", "r1"], "client_software_name": ["test", "bad name!"],
}  # fmt: skip
INTEGERS = {
    "acks": [-1, 0, 1, 5], "timeout_ms": [0, 10, 1000], "max_wait_ms": [0, 0, 0, 1, 20], "min_bytes": [0, 1, 1 << 20],
    "max_bytes": [0, 1, 1000, 1 << 20, -1], "partition_max_bytes": [0, 1, 1000, 1 << 20, -1],
    "replica_id": [-1, -1, -2, 3],
    "isolation_level": [0, 1, 9], "session_id": [0, 0, 1], "session_epoch": [-1, -1, 0, 1],
    "timestamp": [-1, -2, -3, -4, -5, -6, 0, 1_700_000_000_000], "max_num_offsets": [1, 10, -1],
    "num_partitions": [1, 2, -1, 0, 1_000_000], "replication_factor": [1, 1, -1, 9], "count": [1, 2, 4, 1_000_000],
    "resource_type": [2, 4, 8, 0], "config_operation": [0, 1, 2, 3, 9], "transaction_timeout_ms": [1000, -1],
    "index": [0, 0, 0, 1, 2, 9, -1], "partition": [0, 0, 0, 1, 2, 9, -1], "partition_index": [0, 0, 0, 1, 2, 9, -1],
    "fetch_offset": [0, 0, 1, 5, 100, -1, 2**62], "current_leader_epoch": [-1, -1, -1, 0, 5],
    "last_fetched_epoch": [-1, -1, -1, 0, 5], "response_partition_limit": [1, 2000, -1], "upgrade_type": [0, 1, 2, 3],
}  # fmt: skip
NUMBERS = [0, 0, 0, 1, 1, 2, 5, -1, -2, 100, 2**31 - 1, 2**63 - 1, -(2**63)]
INTERESTING = [
    b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\xfe", b"\x80\0\0\0", b"\0\x10\0\0",
    b"\xff\xff", b"\x7f\xff", b"\x80", b"\xff", b"\0", b"\x01", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\x01",
]  # fmt: skip
WATCHED = {
    ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS, ApiKey.METADATA, ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
}  # fmt: skip
BULK = 64
PATIENCE_S = 2.0
MAX_TOPICS = 5
HANG_S = 10.0
HANG_CPU_S = 1.0


class Corpus:
    """Valid request payloads (without size) of every served API and version."""

    def __init__(self, rng: random.Random, topic_ids: list[bytes], per_version: int) -> None:
        self._rng = rng
        self._topic_ids = topic_ids
        self.by_api: dict[int, list[bytes]] = {}
        for key, row in HANDLERS.items():
            payloads = [
                self._payload(int(key), version)
                for version in range(row.min_version, row.max_version + 1)
                for _ in range(per_version * (4 if key in (ApiKey.PRODUCE, ApiKey.FETCH) else 1))
            ]
            self.by_api[int(key)] = payloads
        weights = {
            ApiKey.CREATE_TOPICS: 0.5,
            ApiKey.CREATE_PARTITIONS: 0.2,
            ApiKey.DELETE_TOPICS: 0.2,
            ApiKey.PRODUCE: 4,
        }
        self._apis = list(self.by_api)
        self._weights = [float(weights.get(ApiKey(api), 2.0 if api == ApiKey.FETCH else 1.0)) for api in self._apis]

    def some(self, rng: random.Random, count: int) -> list[bytes]:
        return [rng.choice(self.by_api[api]) for api in rng.choices(self._apis, self._weights, k=count)]

    def _payload(self, api_key: int, version: int) -> bytes:
        cls = request_class(api_key)
        client = self._rng.choice([b"fuzz", b"", None, b"__admin_client"])
        out = bytearray(
            struct.pack(">hhih", api_key, version, 0, -1 if client is None else len(client)) + (client or b"")
        )
        if is_flexible(api_key, version):
            out.append(0)
        cls.encode[version](self._struct(cls, version), out)
        return bytes(out)

    def _struct(self, cls: Any, version: int) -> Any:
        return cls(**{spec.name: self._field(spec, version) for spec in specs(cls) if spec.in_version(version)})

    def _field(self, spec: FieldSpec, version: int) -> Any:
        rng = self._rng
        if spec.nullable_in(version) and rng.random() < 0.1:
            return None
        if not spec.array:
            return self._value(spec, version)
        if spec.name in ("assignments", "configs") and rng.random() < 0.7:
            return []  # nearly all others are wrong
        return [self._value(spec, version) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]

    def _value(self, spec: FieldSpec, version: int) -> Any:
        rng = self._rng
        if spec.wire is None:
            return self._struct(spec.struct, version)
        kind, form = spec.wire.kind, spec.wire.format
        if kind == "records":
            return self._records(version)
        if kind == "string":
            return rng.choice(STRINGS.get(spec.name, ["t", "", "1", "PLAINTEXT"]))
        if kind == "bytes":
            return rng.randbytes(rng.choice((0, 5, 50)))
        if form == "?":
            return rng.random() < 0.5
        if form == "d":
            return rng.random()
        if form == "16s":
            return rng.choice([*self._topic_ids, ZERO_UUID, rng.randbytes(16)])
        number = rng.choice(INTEGERS.get(spec.name, NUMBERS))
        bits = struct.calcsize(f">{form}") * 8
        return (
            max(-(1 << bits - 1), min(number, (1 << bits - 1) - 1))
            if form.islower()
            else max(0, number) & (1 << bits) - 1
        )

    def _records(self, version: int) -> bytes | None:
        """A good batch or message set, or a bad one with a good CRC."""
        rng = self._rng
        if version < 3 and rng.random() < 0.8:
            codec = rng.choice((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
            listed = [Record(n, now_ms(), b"k", b"v" * rng.randrange(50)) for n in range(rng.randrange(1, 5))]
            return encode_set(listed, rng.choice((0, 1)), codec=codec)
        options: dict[str, Any] = {"codec": rng.choice(list(Codec))}
        if rng.random() < 0.5:
            options |= {
                "producer_id": rng.randrange(20),
                "producer_epoch": rng.randrange(3),
                "base_sequence": rng.randrange(4),
            }
        out = batch(*(b"v" * rng.randrange(100) for _ in range(rng.randrange(1, 6))), timestamp=now_ms(), **options)
        if rng.random() < 0.5:
            for _ in range(rng.choice((1, 1, 2, 5))):
                position = rng.choice((rng.randrange(8, HEADER_BYTES), rng.randrange(HEADER_BYTES, len(out))))
                out[position] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            if rng.random() < 0.8:
                seal(out)
        return bytes(out)


def mutated(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    """One payload with something wrong, most of the time."""
    out = bytearray(payload)
    how = rng.randrange(12)
    if how <= 2:  # bits and bytes
        for _ in range(rng.choice((1, 1, 2, 4, 8))):
            out[rng.randrange(len(out))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    elif how <= 4:  # a count, a length, a number
        value = rng.choice(INTERESTING)
        position = rng.randrange(len(out))
        out[position : position + len(value)] = value
    elif how == 5:
        del out[rng.randrange(len(out)) :]
    elif how == 6:
        position = rng.randrange(len(out))
        out[position:position] = rng.randbytes(rng.choice((1, 2, 4, 100)))
    elif how == 7:
        position = rng.randrange(len(out))
        del out[position : position + rng.choice((1, 2, 4, 16))]
    elif how == 8:  # splice
        out = out[: rng.randrange(len(out) + 1)] + other[rng.randrange(len(other)) :]
    elif how == 9:  # repeat a part
        position = rng.randrange(len(out))
        part = bytes(out[position : position + rng.choice((4, 16, 64))])
        out[position:position] = part * rng.choice((1, 2, 50))
    elif how == 10:  # random after a good header, or all of it
        out = bytearray(out[: rng.choice((0, 8, 10, 14))] + rng.randbytes(rng.randrange(1, 200)))
    return bytes(out)


def allowed(payload: bytes, rng: random.Random, *, auto_create: bool) -> bool:
    """Whether the broker may obey: see the module's head."""
    if len(payload) < 10:
        return True
    api_key, version, _, client_size = struct.unpack_from(">hhih", payload)
    if api_key not in WATCHED or not HANDLERS[api_key].min_version <= version <= HANDLERS[api_key].max_version:
        return True
    try:
        position = 10 + max(0, client_size) + (1 if is_flexible(api_key, version) else 0)
        request, _ = request_class(api_key).decode[version](memoryview(payload), position)
    except (Malformed, IndexError):
        return True
    if api_key == ApiKey.METADATA:
        unknown = [topic for topic in request.topics or () if topic.name not in NAMES]
        return not auto_create or not unknown or (len(unknown) < 4 and rng.random() < 0.05)
    if api_key == ApiKey.CREATE_TOPICS:
        unknown = [topic for topic in request.topics if topic.name not in NAMES]
        small = all(topic.num_partitions <= 16 or topic.num_partitions > 100_000 for topic in request.topics)
        return small and len(request.topics) < 8 and (not unknown or rng.random() < 0.2)
    if api_key == ApiKey.DELETE_TOPICS:
        by_id = any(topic.name in TOPICS or topic.topic_id != ZERO_UUID for topic in request.topics)
        return not by_id and not TOPICS.keys() & set(request.topic_names)
    if api_key == ApiKey.CREATE_PARTITIONS:
        return all(topic.count <= 16 or topic.count > 100_000 for topic in request.topics)
    return all(
        resource.resource_type != 8 and all(config.name in CONFIGS for config in resource.configs)
        for resource in request.resources
    )


def framed(payload: bytes, rng: random.Random) -> bytes:
    """Put the size before `payload`, now and then a wrong one."""
    size = len(payload)
    if rng.random() < 0.005:
        size = rng.choice((size + 1, max(1, size - 1), 0, -1, 2**31 - 1, size + 1000))
    return struct.pack(">i", size) + payload


class Shooter(threading.Thread):
    """A thread that sends frames until it is stopped, or until it has sent its share."""

    def __init__(
        self, port: int, corpus: Corpus, seed: str, stop: threading.Event, *, share: int, auto_create: bool
    ) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._corpus = corpus
        self._rng = random.Random(seed)
        self._stopping = stop
        self._share = share
        self._auto_create = auto_create
        self.sent = self.answered = self.closed = self.abandoned = 0
        self.recent: deque[bytes] = deque(maxlen=4 * BULK)
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.is_set() and self.sent < self._share:
                self._shoot(list(self._bulk()))
        except BaseException as error:
            self.error = error

    def _bulk(self) -> Iterator[bytes]:
        rng = self._rng
        others = self._corpus.some(rng, BULK)
        for number, payload in enumerate(self._corpus.some(rng, BULK)):
            out = mutated(payload, others[number], rng)
            if not allowed(out, rng, auto_create=self._auto_create):
                out = b"\xff" + out[1:]
            if len(out) >= 8 and rng.random() < 0.95:
                out = out[:4] + struct.pack(">i", number) + out[8:]
            yield framed(out, rng)

    def _shoot(self, frames: list[bytes]) -> None:
        """Send all frames, over as many connections as it takes."""
        self.recent.extend(frames)
        first = 0
        while first < len(frames) and not self._stopping.is_set():
            with Wire(self._port, PATIENCE_S) as wire:
                wire.send(b"".join(frames[first:]))
                wire.half_close()
                last = first - 1
                while isinstance(answer := wire.receive(), bytes):
                    self.answered += 1
                    last = last + 1
                    number = struct.unpack_from(">i", answer)[0] if len(answer) >= 4 else -1
                    if last < number < len(frames):
                        last = number
                if answer == SILENT:  # a long poll: go away while it waits
                    self.abandoned += 1
                else:
                    self.closed += 1
            following = min(last + 2, len(frames))
            self.sent += following - first
            first = following


class Pinger(threading.Thread):
    """A thread that asks for ApiVersions all the time, and notes how long each answer takes."""

    def __init__(self, process: BrokerProcess, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._process = process
        self._stopping = stop
        self.pings = 0
        self.worst_s = self.worst_cpu_s = 0.0
        self.peak_rss_bytes = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with Wire(self._process.port, HANG_S) as wire:
                while not self._stopping.wait(0.05):
                    self._ping(wire)
        except BaseException as error:
            self.error = error

    def _ping(self, wire: Wire) -> None:
        started, started_cpu = time.monotonic(), cpu_s(self._process.pid)
        wire.send(frame_of(ApiVersionsRequest(), 0))
        answer = wire.receive()
        assert answer not in (CLOSED, SILENT), f"the ping got {answer} after {time.monotonic() - started:.1f} s"
        self.pings += 1
        self.worst_s = max(self.worst_s, time.monotonic() - started)
        self.worst_cpu_s = max(self.worst_cpu_s, cpu_s(self._process.pid) - started_cpu)
        self.peak_rss_bytes = max(self.peak_rss_bytes, self._process.rss_bytes())


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process: a ping that waits for other processes on this machine is no hang."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Janitor(threading.Thread):
    """A thread that deletes the topics of mutants, and makes the fixed ones again that mutants have deleted."""

    def __init__(self, port: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._stopping = stop
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with Broker(self._port, 30) as peer:
                while not self._stopping.wait(0.3):
                    self.clean(peer)
        except BaseException as error:
            self.error = error

    def clean(self, peer: Broker) -> None:
        answer = peer.ask(MetadataRequest(topics=None), 7)
        assert not isinstance(answer, str), f"the janitor's Metadata got {answer}"
        names = {topic.name for topic in answer.topics}
        for name in TOPICS.keys() - names:
            peer.create(name, partitions=TOPICS[name])
        for name in TOPICS:  # a limit of one byte would keep all records out from then on
            resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=[])
            peer.ask(AlterConfigsRequest(resources=[resource]), 1)
        others = sorted(names - TOPICS.keys())
        if len(others) > MAX_TOPICS:
            deleted = peer.ask(DeleteTopicsRequest(topic_names=others, timeout_ms=10_000), 3)
            assert not isinstance(deleted, str), f"the janitor's DeleteTopics got {deleted}"


class Fuzz:
    """One run against one broker process."""

    def __init__(self, process: BrokerProcess, rng: random.Random, *, auto_create: bool) -> None:
        self._process = process
        self._auto_create = auto_create
        with Broker(process.port) as peer:
            for name, count in TOPICS.items():
                assert peer.create(name, partitions=count) == 0
            found = peer.ask(MetadataRequest(topics=None), 12)
        self._seed = str(rng.getrandbits(64))
        self._corpus = Corpus(rng, [topic.topic_id for topic in found.topics], per_version=6)

    def run(self, *, frames: int, seconds: float, shooters: int = 3) -> dict[str, object]:
        """Run until so many frames are sent, or the time is over; return the facts. Raises AssertionError."""
        process = self._process
        stop = threading.Event()
        pinger, janitor = Pinger(process, stop), Janitor(process.port, stop)
        share = -(-frames // shooters)
        shots = [
            Shooter(process.port, self._corpus, f"{self._seed} {n}", stop, share=share, auto_create=self._auto_create)
            for n in range(shooters)
        ]
        before = process.rss_bytes()
        threads: list[Any] = [pinger, janitor, *shots]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(shot.is_alive() for shot in shots) and not any(t.error for t in threads):
            time.sleep(0.1)
        stop.set()
        for thread in threads:
            thread.join(60)
        self._report_errors(threads, shots)
        return {
            "frames": sum(shot.sent for shot in shots),
            "answered": sum(shot.answered for shot in shots),
            "connections": sum(shot.closed for shot in shots),
            "abandoned": sum(shot.abandoned for shot in shots),
            "topics made": process.log().count(": created, partitions="),
            "records": self._records(),
            "pings": pinger.pings,
            "worst ping s": round(pinger.worst_s, 3),
            "worst ping cpu s": round(pinger.worst_cpu_s, 3),
            "rss before MB": before >> 20,
            "peak MB": pinger.peak_rss_bytes >> 20,
            "rss after MB": process.rss_bytes() >> 20,
        }

    def _records(self) -> int:
        """Return how many records are in the first partitions of the fixed topics."""
        with Broker(self._process.port) as peer:
            return sum(peer.end_offset(name) for name in TOPICS)

    def _report_errors(self, threads: list[Any], shots: list[Shooter]) -> None:
        errors = [f"{type(thread).__name__}: {thread.error!r}" for thread in threads if thread.error is not None]
        log = self._process.log()
        position = log.find("Traceback")
        if not errors and position < 0:
            return
        frames = self._process.data.with_name("recent-frames.txt")
        with suppress(OSError):
            frames.write_text("".join(f"{frame.hex()}\n" for shot in shots for frame in shot.recent))
        raise AssertionError(f"{errors}\nlast frames in {frames}\n{log[max(0, position - 300) :][:4000]}")
