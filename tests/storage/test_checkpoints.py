from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.storage.checkpoints import (
    CheckpointError,
    MetaProperties,
    format_clean_shutdown,
    format_offsets,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_offsets,
    parse_partition_metadata,
    read_offsets,
)
from klamm.storage.paths import TopicPartition, parse_offset_file, parse_partition_directory
from tests.support.memory_filesystem import MemoryFilesystem


def test_offset_checkpoint_format() -> None:
    offsets = {TopicPartition("orders", 1): 1498, TopicPartition("orders", 0): 1500, TopicPartition("a.b-c", 10): 0}
    content = b"0\n3\na.b-c 10 0\norders 0 1500\norders 1 1498\n"
    assert format_offsets(offsets) == content
    assert parse_offsets(content) == offsets
    assert parse_offsets(b"0\n0\n") == {}


@pytest.mark.parametrize(
    "content", [b"", b"0", b"1\n0\n", b"0\n1\n", b"0\n0\na 0 0\n", b"0\n1\na b c\n", b"0\n1\na 0 -1\n"]
)
def test_garbage_is_not_a_checkpoint(content: bytes) -> None:
    with pytest.raises(CheckpointError):
        parse_offsets(content)


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "cleaner-offset-checkpoint"])
def test_a_checkpoint_that_kafka_has_made_and_not_written_yet_is_empty(name: str) -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directories(Path("/data"))
    assert read_offsets(filesystem, Path("/data") / name) == {}
    filesystem.open_file(Path("/data") / name, create=True)
    assert read_offsets(filesystem, Path("/data") / name) == {}
    filesystem.open_file(Path("/data/recovery-point-offset-checkpoint"), create=True)
    with pytest.raises(CheckpointError):
        read_offsets(filesystem, Path("/data/recovery-point-offset-checkpoint"))


@given(st.binary(max_size=60))
def test_random_bytes_are_refused_or_read(content: bytes) -> None:
    for parse in (parse_offsets, parse_partition_metadata, MetaProperties.parse):
        with suppress(CheckpointError):
            parse(content)


def test_partition_metadata_format() -> None:
    topic_id = bytes(range(16))
    content = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert format_partition_metadata(topic_id) == content
    assert parse_partition_metadata(content) == topic_id


def test_meta_properties_of_kraft_and_of_zookeeper_times() -> None:
    kraft = (
        b"#\n#Thu Nov 20 10:00:00 UTC 2025\ncluster.id=4L6g3nShT-eMCtK--X86sw\nversion=1\ndirectory.id=abc\nnode.id=7\n"
    )
    meta = MetaProperties("4L6g3nShT-eMCtK--X86sw", 7, "abc")
    assert MetaProperties.parse(kraft) == meta
    assert MetaProperties.parse(meta.format()) == meta
    assert MetaProperties.parse(b"version=0\nbroker.id=3\ncluster.id=a\\=b\n") == MetaProperties("a=b", 3, "", "0")


def test_clean_shutdown_format() -> None:
    assert format_clean_shutdown(42) == b'{"version":0,"brokerEpoch":42}'
    assert parse_clean_shutdown(format_clean_shutdown(42)) == 42
    assert parse_clean_shutdown(b"") == -1


def test_names() -> None:
    assert parse_partition_directory("a.b-c-12") == TopicPartition("a.b-c", 12)
    for name in ("a", "a-", "a-01", "-1", "a-0.0123456789abcdef0123456789abcdef-future", "a b-0", ".lock"):
        assert parse_partition_directory(name) is None
    assert parse_offset_file("00000000000000000042.timeindex") == (42, ".timeindex")
    for name in ("42.log", "00000000000000000042.log.deleted", "leader-epoch-checkpoint"):
        assert parse_offset_file(name) is None
