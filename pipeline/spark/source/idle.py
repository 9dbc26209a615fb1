"""Python processes of Spark end quietly when Spark closes them because they were idle.

Over Unix sockets (`spark.python.unix.domain.socket.enabled`, a quarter less work than TCP) such a process cannot say
any more that its input has ended, and PySpark 4.2 prints a traceback of BrokenPipeError for each that was idle for a
minute. The daemon that processes of plans are forked from cannot be chosen, so this is done from within them.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def end_quietly() -> None:
    """In a process that was forked from PySpark's daemon: the next wait for work ends without a traceback."""
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
