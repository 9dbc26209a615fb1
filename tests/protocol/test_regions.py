from __future__ import annotations

from pathlib import Path

import pytest

from klamm.protocol.regions import FileRegion


def test_region_reads_its_stretch_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        region = FileRegion(file, position=3, size=4)
        assert len(region) == 4
        assert region.read() == b"3456"
        assert file.tell() == 0


def test_region_beyond_the_end_of_the_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"0123")
    with path.open("rb") as file, pytest.raises(EOFError):
        FileRegion(file, position=2, size=4).read()
