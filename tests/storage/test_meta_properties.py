"""`meta.properties`: the owner of a log directory, and the error that any other broker gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.storage.checkpoints import MetaProperties
from klamm.storage.filesystem import replace_file
from klamm.storage.log_dir import LogDir
from klamm.storage.meta_properties import WrongOwner, ensure_meta_properties, known_cluster_id, new_directory_id
from tests.support.memory_filesystem import MemoryFilesystem

ROOT = Path("/data")
FILE = ROOT / "meta.properties"
KRAFT = b"#\n#Sat Nov 21 15:50:16 UTC 2026\nnode.id=3\ndirectory.id=K3pTXb_gmfEebVId_Gz1YQ\nversion=1\ncluster.id=c\n"
ZOOKEEPER = b"#\n#Thu Jan 02 10:00:00 UTC 2020\ncluster.id=c\nversion=0\nbroker.id=3\n"


@pytest.fixture
def filesystem() -> MemoryFilesystem:
    filesystem = MemoryFilesystem()
    filesystem.make_directories(ROOT)
    return filesystem


def test_a_new_directory_gets_the_cluster_and_an_id_of_its_own(filesystem: MemoryFilesystem) -> None:
    meta = ensure_meta_properties(filesystem, ROOT, 3, "c")
    assert (meta.cluster_id, meta.node_id, meta.version) == ("c", 3, "1")
    assert meta.directory_id
    assert ensure_meta_properties(filesystem, ROOT, 3, None) == meta


def test_kafkas_file_stays_as_it_is(filesystem: MemoryFilesystem) -> None:
    replace_file(filesystem, FILE, KRAFT)
    assert ensure_meta_properties(filesystem, ROOT, 3, None) == MetaProperties("c", 3, "K3pTXb_gmfEebVId_Gz1YQ")
    assert filesystem.read_bytes(FILE) == KRAFT


def test_a_file_of_the_zookeeper_era_gets_a_directory_id_and_stays_one(filesystem: MemoryFilesystem) -> None:
    replace_file(filesystem, FILE, ZOOKEEPER)
    meta = ensure_meta_properties(filesystem, ROOT, 3, None)
    lines = set(filesystem.read_bytes(FILE).decode().split())
    assert lines == {"cluster.id=c", "version=0", "broker.id=3", f"directory.id={meta.directory_id}"}
    assert ensure_meta_properties(filesystem, ROOT, 3, "c") == meta


@pytest.mark.parametrize("content", [KRAFT, ZOOKEEPER])
def test_an_error_for_another_node_names_the_node_id_of_the_directory(
    filesystem: MemoryFilesystem, content: bytes
) -> None:
    replace_file(filesystem, FILE, content)
    with pytest.raises(WrongOwner, match=r"node\.id=3, but this is node 1: set node\.id=3"):
        ensure_meta_properties(filesystem, ROOT, 1, None)
    with pytest.raises(WrongOwner, match=r"cluster\.id=c, but this is cluster other"):
        ensure_meta_properties(filesystem, ROOT, 3, "other")
    assert filesystem.read_bytes(FILE) == content


def test_a_new_directory_beside_kafkas_joins_its_cluster(filesystem: MemoryFilesystem) -> None:
    directories = [Path("/new"), ROOT]
    assert known_cluster_id(filesystem, directories) is None
    replace_file(filesystem, FILE, KRAFT)
    assert known_cluster_id(filesystem, directories) == "c"
    replace_file(filesystem, ROOT / "klamm.boot", b"boot\n")
    assert known_cluster_id(filesystem, directories) is None
    replace_file(filesystem, FILE, b"junk")
    filesystem.unlink(ROOT / "klamm.boot")
    with pytest.raises(WrongOwner):
        known_cluster_id(filesystem, directories)


def test_ids_do_not_look_like_options() -> None:
    assert not [text for text in (new_directory_id() for _ in range(2000)) if text.startswith("-")]


def test_a_directory_that_is_left_has_its_mark_of_a_clean_shutdown_as_it_was(filesystem: MemoryFilesystem) -> None:
    replace_file(filesystem, FILE, KRAFT)
    mark = ROOT / ".kafka_cleanshutdown"
    replace_file(filesystem, mark, b'{"version":0,"brokerEpoch":12}')
    log_dir = LogDir.open(ROOT, node_id=3, filesystem=filesystem)
    assert not filesystem.exists(mark)
    log_dir.leave()
    assert filesystem.read_bytes(mark) == b'{"version":0,"brokerEpoch":12}'


def test_a_directory_from_before_clusters_had_ids_gets_one(filesystem: MemoryFilesystem) -> None:
    """Kafka 0.8.2 to 2.3."""
    replace_file(filesystem, FILE, b"#\n#Sat Nov 21 16:05:14 UTC 2026\nbroker.id=3\nversion=0\n")
    assert known_cluster_id(filesystem, [ROOT]) is None
    first = ensure_meta_properties(filesystem, ROOT, 3, None)
    assert first.cluster_id
    assert first.directory_id
    assert ensure_meta_properties(filesystem, ROOT, 3, first.cluster_id) == first
    with pytest.raises(WrongOwner):
        ensure_meta_properties(filesystem, ROOT, 3, "other")
