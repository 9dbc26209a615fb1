"""A quiet end for Python processes of Spark that Spark closes because they were idle.

Over Unix sockets (`spark.python.unix.domain.socket.enabled`, a quarter less work than TCP) such a process cannot report
that its input has ended, and PySpark 4.2 prints a traceback of BrokenPipeError for each that was idle for a minute. The
daemon from which planning processes are forked cannot be replaced, so this is done from within them.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def end_quietly() -> None:
    """Let the next wait for work end without a traceback, in a process forked from PySpark's daemon."""
    main: Any = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is None or spec.name != "pyspark.daemon" or hasattr(main, "klamm_ends_quietly"):
        return
    spoken = main.worker

    def worker(*arguments: Any) -> int:
        try:
            code: int = spoken(*arguments)
        except BrokenPipeError:
            os._exit(0)
        return code

    main.worker = worker
    main.klamm_ends_quietly = True
