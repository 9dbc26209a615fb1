"""No space, no descriptors: what cannot be done is refused, the rest goes on, and all is well when the need is over."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.api_versions import ApiVersionsRequest
from klamm.storage.paths import CLEAN_SHUTDOWN
from tests.faults.damage import CONFIG, contents
from tests.faults.network_cases import Broker, now_ms
from tests.faults.wire import CLOSED, SILENT, Wire, batch, frame_of
from tests.support.broker_process import BrokerProcess, wait_for

pytestmark = pytest.mark.faults

LIMITED = """
import os, resource, sys
kind, soft, hard = sys.argv[1:4]
resource.setrlimit(getattr(resource, kind), (int(soft), int(hard)))
os.execvp(sys.argv[4], sys.argv[4:])
"""
MIB = 1 << 20
RECORD_BYTES = 100_000
ENOUGH = 400  # records that fit nowhere here


def limited(kind: str, soft: int, hard: int) -> list[str]:
    """A prefix that starts a command with a resource limit."""
    return [sys.executable, "-c", LIMITED, kind, str(soft), str(hard)]


class Place:
    """Where there is too little space; `more` makes more of it."""

    def __init__(self, process: BrokerProcess, more: Callable[[], None]) -> None:
        self.process = process
        self.more = more


@contextmanager
def file_size_limit(tmp_path: Path) -> Iterator[Place]:
    """No file above 3 MiB, a soft limit that is lifted later. Needs no privileges."""
    config = {**CONFIG, "log.segment.bytes": 64 * MIB}
    process = BrokerProcess(tmp_path / "data", config, prefix=limited("RLIMIT_FSIZE", 3 * MIB, resource.RLIM_INFINITY))
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    def more() -> None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, infinite)

    yield Place(process, more)


@contextmanager
def small_file_system(tmp_path: Path, config: Mapping[str, object] = CONFIG) -> Iterator[Place]:
    """A tmpfs of 12 MiB, 6 of them taken by a file that is removed later."""
    directory = tmp_path / "disk"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", directory], check=True)
    try:
        (directory / "ballast").write_bytes(bytes(6 * MIB))
        process = BrokerProcess(directory / "data", {**CONFIG, **config})
        process.log_path = tmp_path / "data.log"
        yield Place(process, lambda: (directory / "ballast").unlink(missing_ok=True))
        if process._process is not None:
            process.kill()
    finally:
        subprocess.run(["umount", directory], check=True)


PLACES = {
    "a file size limit": file_size_limit,
    **({"a full file system": small_file_system} if os.geteuid() == 0 else {}),
}


class Writer:
    """Appends numbered records as an idempotent producer; refused ones are sent again."""

    def __init__(self, peer: Broker) -> None:
        self.producer_id, _ = peer.producer()
        self.acked = 0

    def write(self, peer: Broker, topic: str = "t") -> int | str:
        records = batch(
            f"{self.acked} ".encode() + bytes(RECORD_BYTES),
            timestamp=now_ms(),
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.acked,
        )
        code = peer.produce(records, topic=topic)
        self.acked += code == 0
        return code

    def write_until_refused(self, peer: Broker) -> int | str:
        for _ in range(ENOUGH):
            if (code := self.write(peer)) != 0:
                return code
        raise AssertionError("it was never refused")


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("clean", [True, False], ids=["SIGTERM", "kill"])
def test_row_22_no_space_is_refused_and_passes(tmp_path: Path, where: str, clean: bool) -> None:
    with PLACES[where](tmp_path) as place, place.process as process:
        with Broker(process.port) as peer:
            assert peer.create("t") == 0
            writer = Writer(peer)
            # full: refused with 56, read all the same
            assert writer.write_until_refused(peer) == ErrorCode.KAFKA_STORAGE_ERROR
            assert writer.acked > 10
            assert writer.write(peer) == ErrorCode.KAFKA_STORAGE_ERROR
            assert contents(peer, topic="t") == list(range(writer.acked))
            assert peer.serves_the_next_client()
            # space returns: taken again, nothing twice
            place.more()
            assert [writer.write(peer) for _ in range(5)] == [0] * 5
            assert contents(peer, topic="t") == list(range(writer.acked))
        if clean:
            assert process.terminate() == 0
        else:
            process.kill()
        process.restart()
        place.more()
        with Broker(process.port) as peer:
            assert contents(peer, topic="t") == list(range(writer.acked))
            assert writer.write(peer) == 0
    assert "Traceback" not in process.log()


@pytest.mark.parametrize("where", PLACES)
def test_row_22_stopped_and_started_while_full(tmp_path: Path, where: str) -> None:
    with PLACES[where](tmp_path) as place:
        process = place.process.start()
        with Broker(process.port) as peer:
            assert peer.create("t") == 0
            writer = Writer(peer)
            assert writer.write_until_refused(peer) == ErrorCode.KAFKA_STORAGE_ERROR
        process.kill()
        process.restart()
        with Broker(process.port) as peer:
            assert contents(peer, topic="t") == list(range(writer.acked))
            assert writer.write_until_refused(peer) == ErrorCode.KAFKA_STORAGE_ERROR
            place.more()
            assert writer.write(peer) == 0
            assert contents(peer, topic="t") == list(range(writer.acked))
        assert process.terminate() == 0
    assert "Traceback" not in process.log()


if "a full file system" in PLACES:  # a file size limit does not keep small files from being made

    def test_row_22_topics_cannot_be_made_on_a_full_disk_but_the_broker_lives(tmp_path: Path) -> None:
        with small_file_system(tmp_path) as place, place.process as process:
            with Broker(process.port, 30) as peer:
                assert peer.create("t") == 0
                filler = place.process.data.parent / "filler"
                with filler.open("wb", buffering=0) as out:
                    try:
                        while out.write(bytes(4096)):
                            pass
                    except OSError:
                        pass
                codes = {peer.create(f"topic-{n}", partitions=5) for n in range(5)}
                assert peer.serves_the_next_client()
                filler.unlink()
                assert peer.create("after") == 0
                assert peer.produce(batch(b"v", timestamp=now_ms()), topic="after") == 0
            assert process.terminate() == 0
            process.restart()
            with Broker(process.port) as peer:
                assert peer.produce(batch(b"v", timestamp=now_ms()), topic="after") == 0
        print("creating on a full disk:", codes)
        assert CLOSED not in codes and SILENT not in codes
        assert "Traceback" not in process.log()

    RESERVE = {"klamm.log.dir.reserve.bytes": MIB // 2, "log.retention.check.interval.ms": 500}

    @contextmanager
    def full_to_the_last_byte(tmp_path: Path, **config: object) -> Iterator[tuple[Place, BrokerProcess, Broker]]:
        """Topics `t` and `u` with segments of records, and not a byte of the disk free."""
        with (
            small_file_system(tmp_path, {**RESERVE, **config}) as place,
            place.process as process,
            Broker(process.port, 30) as peer,
        ):
            for topic in ("t", "u"):
                assert peer.create(topic) == 0
            writer = Writer(peer)
            assert [writer.write(peer, "t") for _ in range(25)] == [0] * 25
            assert peer.produce(batch(b"v", timestamp=now_ms()), topic="u") == 0
            fill_up(place.process.data.parent / "filler")
            yield place, process, peer

    def fill_up(path: Path) -> None:
        with path.open("wb", buffering=0) as out:
            for size in (MIB, 4096, 1):
                try:
                    while out.write(bytes(size)) == size:
                        pass
                except OSError:
                    pass

    def appends_again(peer: Broker) -> bool:
        return peer.produce(batch(b"v", timestamp=now_ms()), topic="u") == 0

    @pytest.mark.parametrize("what", ["records", "topic", "retention"])
    def test_row_22_what_deletes_works_on_a_full_disk(tmp_path: Path, what: str) -> None:
        with full_to_the_last_byte(tmp_path) as (_, process, peer):
            admin = AdminClient({"bootstrap.servers": process.address})
            if what == "records":
                deleted = admin.delete_records([TopicPartition("t", 0, 25)], request_timeout=20)
                assert [each.result(20).low_watermark for each in deleted.values()] == [25]
            elif what == "topic":
                admin.delete_topics(["t"], operation_timeout=20)["t"].result(20)
            else:
                resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
                resource.add_incremental_config(
                    ConfigEntry("retention.bytes", "1", incremental_operation=AlterConfigOpType.SET)
                )
                next(iter(admin.incremental_alter_configs([resource]).values())).result(20)
            wait_for(lambda: appends_again(peer), 60, "an append after the deletion")
            process.kill()
            process.restart()
            with Broker(process.port, 30) as again:
                if what != "topic":
                    assert again.fetch(topic="t") == ErrorCode.OFFSET_OUT_OF_RANGE  # at offset 0
                    assert again.end_offset("t") == 25
                assert appends_again(again)
            assert process.terminate() == 0
        assert "Traceback" not in process.log()

    def test_row_22_a_full_disk_is_left_and_entered_cleanly(tmp_path: Path) -> None:
        with full_to_the_last_byte(tmp_path) as (place, process, _):
            assert process.terminate() == 0
            assert (process.data / CLEAN_SHUTDOWN).exists()
            process.restart()
            with Broker(process.port, 30) as again:
                assert contents(again, topic="t") == list(range(25))
                assert again.produce(batch(b"v", timestamp=now_ms()), topic="u") == ErrorCode.KAFKA_STORAGE_ERROR
                (place.process.data.parent / "filler").unlink()
                wait_for(lambda: appends_again(again), 20, "an append when there is space")
        assert "Traceback" not in process.log()


def test_row_28_out_of_descriptors(tmp_path: Path) -> None:
    """More clients than descriptors: those that are in are served, segments are rolled, and later all is well."""
    prefix = limited("RLIMIT_NOFILE", 120, 120)
    with BrokerProcess(tmp_path / "data", CONFIG, prefix=prefix) as process, Broker(process.port) as peer:
        assert peer.create("t") == 0
        writer = Writer(peer)
        ping = frame_of(ApiVersionsRequest(), 0)
        with ExitStack() as stack:
            wires = [stack.enter_context(Wire(process.port, 10)) for _ in range(200)]
            wires[0].send(ping)
            assert wires[0].receive() not in (CLOSED, SILENT)
            assert [writer.write(peer) for _ in range(30)] == [0] * 30  # three segments
            assert contents(peer, topic="t") == list(range(30))
        wait_for(peer.serves_the_next_client, what="a free descriptor")
        assert writer.write(peer) == 0
    assert "Traceback" not in process.log()
