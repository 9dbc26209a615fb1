"""The wheel holds the broker: the folders at the top of the tree, under the namespace klamm; and compiled code."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def built_wheel(directory: Path, **environment: str) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, env={**os.environ, **environment})
    (wheel,) = directory.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    wheel = built_wheel(directory)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "site")
    return directory / "site"


def test_every_module_is_in_the_wheel(unpacked):
    here = {
        f"klamm/{path.relative_to(ROOT)}"
        for folder in ("broker", "cli", "client", "config", "pipeline", "protocol", "storage")
        for path in (ROOT / folder).rglob("*.py")
        if path.parent.name != "discovery"  # beside the package, so that Spark finds it
    }
    there = {str(path.relative_to(unpacked)) for path in (unpacked / "klamm").rglob("*.py")}
    assert there == here | {"klamm/__init__.py", "klamm/__main__.py"}


def test_nothing_but_klamm_and_what_spark_looks_for_is_installed(unpacked):
    assert {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")} == {
        "klamm",
        "pyspark_klamm.py",
    }


def test_the_command_runs_from_the_wheel(unpacked, tmp_path):
    program = f"""
import sys
sys.path.insert(0, {str(unpacked)!r})
from klamm import __main__
__main__.main(["config"])
print(__main__.__file__)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "log.segment.bytes=1073741824" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(str(unpacked))


def test_the_wheel_has_the_compiled_check(unpacked, tmp_path):
    program = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r}); from klamm.protocol.records import check as c, _check"
    )
    program += "; print(c.IS_COMPILED, _check.__file__)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == f"True {unpacked}/klamm/protocol/records/_check.abi3.so"
    (tags,) = unpacked.glob("*.dist-info/WHEEL")
    assert "Tag: cp311-abi3-linux_" in tags.read_text()


def test_without_a_compiler_the_wheel_is_pure_and_works(tmp_path):
    wheel = built_wheel(tmp_path, CC="no-such-compiler")
    assert wheel.name.endswith("-py3-none-any.whl")
    program = f"import sys; sys.path.insert(0, {str(wheel)!r}); from klamm.protocol.records import check as c"
    program += "; print(c.IS_COMPILED, c.check_records(bytes([14, 0, 0, 0, 1, 2, 65, 0]), 1))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "False (0, 0, 0, True)\n"
