"""Compiles protocol/records/_check.c when a wheel is built, or an editable installation.

It is one call of the C compiler (`CC`, else cc). Where there is none, or no headers of Python, the wheel is pure Python
and does the same work slower; the broker says so at its start.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "protocol/records/_check.c"
LIBRARY = "protocol/records/_check.abi3.so"
OLDEST_PYTHON = "cp311"  # as Py_LIMITED_API in the source says
FLAGS = ("-shared", "-fPIC", "-O3", "-Wall", "-Wextra")


class CompiledCheck(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="klamm-build-")
        made = Path(self._scratch.name, "library.so")
        in_place = Path(self.root, LIBRARY) if version == "editable" else None
        problem = compile_library(Path(self.root, SOURCE), made)
        if in_place is not None:
            install(made, in_place)
        if problem:
            self.app.display_warning(f"Klamm will check records in pure Python: {problem}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"{OLDEST_PYTHON}-abi3-{platform}"
        build_data["pure_python"] = False
        if in_place is None:
            build_data["force_include"][str(made)] = f"klamm/{LIBRARY}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._scratch.cleanup()


def compile_library(source: Path, library: Path) -> str:
    """Why the library could not be made, "" if it was."""
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} has not CPython's interface"
    headers = sysconfig.get_path("include")
    command = [*shlex.split(os.environ.get("CC", "cc")), *FLAGS, f"-I{headers}", str(source), "-o", str(library)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"no C compiler: {error}"
    return "" if done.returncode == 0 else f"{shlex.join(command)} failed:\n{done.stderr}"


def install(made: Path, library: Path) -> None:
    """Replace the old library, which running brokers have mapped, or remove it if there is no new one."""
    if made.exists():
        shutil.copyfile(made, library.with_suffix(".new"))
        library.with_suffix(".new").replace(library)
    else:
        library.unlink(missing_ok=True)
