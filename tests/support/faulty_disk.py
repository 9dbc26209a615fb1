"""A disk that fails, for a real process: single calls end with an errno, or the process dies before them.

    disk = FaultyDisk(tmp_path, root=data)
    with BrokerProcess(data, config, prefix=disk.prefix) as broker:
        disk.rules(f"{errno.EIO} sync .log")

`faulty_disk.c` describes the rules. It is compiled once with `cc` and loaded into the process by LD_PRELOAD: Klamm
itself knows nothing of it. No privileges are needed.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


@cache
def library() -> Path:
    """The compiled library, in the cache of the checkout."""
    target = SOURCE.parents[2] / ".pytest_cache" / "faulty_disk" / f"{SOURCE.stat().st_mtime_ns}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        made = target.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", made, SOURCE, "-ldl"], check=True)
        made.rename(target)
    return target


class FaultyDisk:
    """A disk with rules for one process; at first it has none."""

    def __init__(self, directory: Path, *, root: Path) -> None:
        self._control = directory / "disk-rules"
        self._trace = directory / "disk-rules.trace"
        self._control.write_text("")
        variables = {
            "LD_PRELOAD": str(library()),
            "KLAMM_TEST_DISK": str(self._control),
            "KLAMM_TEST_ROOT": str(root),
        }
        self.prefix = ["env", *(f"{name}={value}" for name, value in variables.items())]

    def rules(self, *lines: str) -> None:
        """Replace the rules. How many calls have matched a line is remembered by its number."""
        made = self._control.with_suffix(".new")
        made.write_text("".join(f"{line}\n" for line in lines))
        made.rename(self._control)

    def traced(self) -> list[str]:
        """The calls that `trace` rules have noted since the last time, as `call path`."""
        if not self._trace.exists():
            return []
        lines = self._trace.read_text().splitlines()
        self._trace.unlink()
        return lines
