"""The wheel holds the broker: the folders at the top of the tree, under the namespace klamm."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "site")
    return directory / "site"


def test_every_module_is_in_the_wheel(unpacked):
    here = {
        f"klamm/{path.relative_to(ROOT)}"
        for folder in ("broker", "client", "config", "protocol", "storage")
        for path in (ROOT / folder).rglob("*.py")
    }
    there = {str(path.relative_to(unpacked)) for path in (unpacked / "klamm").rglob("*.py")}
    assert there == here | {"klamm/__init__.py", "klamm/__main__.py"}


def test_nothing_but_klamm_is_installed(unpacked):
    assert {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")} == {"klamm"}


def test_the_command_runs_from_the_wheel(unpacked, tmp_path):
    program = f"""
import sys
sys.path.insert(0, {str(unpacked)!r})
from klamm.broker import cli
cli.main(["config"])
print(cli.__file__)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "log.segment.bytes=1073741824" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(str(unpacked))
