"""Keeping the process small: memory that was freed goes back to the kernel.

glibc raises its thresholds with the largest block that was ever freed, up to 32 and 64 MiB: one batch that inflates to
100 MiB would let that much stay resident for good. Fixed thresholds switch this off. Blocks from `LARGE_BYTES` on are
mapped and unmapped one by one, which costs page faults, so that the usual batch of a megabyte stays below.
"""

from __future__ import annotations

import ctypes
import gc
import logging
from pathlib import Path

logger = logging.getLogger(__name__)

LARGE_BYTES = 4 << 20
M_TRIM_THRESHOLD = -1  # malloc.h
M_MMAP_THRESHOLD = -3

COLLECTOR_THRESHOLDS = (1_000, 4, 4)
"""A full collection looks at 1,000 x 5 x 5 = 25,000 objects, which takes some 5 ms."""
MANY_OBJECTS = 25_000

MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
USUAL_MAP_COUNT = 65_530


def map_limit() -> int:
    """How many memory maps the kernel lets a process have."""
    try:
        return int(MAX_MAP_COUNT.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return USUAL_MAP_COUNT


def tune_allocator() -> bool:
    """Whether the C library could be told so; others than glibc need not be."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        logger.debug("no mallopt in this C library")
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE_BYTES) and mallopt(M_TRIM_THRESHOLD, LARGE_BYTES))


def freeze_collector() -> None:
    """Called when the broker is ready: what is there now stays, so the cyclic collector need not look at it again.

    The same holds for what survives a full collection later: partitions, groups, offsets. A million of them would make
    each such collection stop the process for 200 ms. What is frozen goes when nothing refers to it, as most does; a
    cycle that is let go of after it was frozen stays, so nothing that comes and goes may be one (a closed connection
    is none).
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # of next to nothing: the collector waits until there is a quarter more than this left
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


def collect_young() -> None:
    """Look at the young objects; to be called each second.

    The collector counts what was made less what went. Where new objects take the place of frozen ones, as when
    retention renews ten thousand segments, it would not begin before there are hundreds of thousands, and stop the
    process for 100 ms. Does nothing in a process whose collector was not spared.
    """
    if _freeze_survivors not in gc.callbacks:
        return
    gc.collect(1)
    if len(gc.get_objects(2)) > MANY_OBJECTS:
        gc.collect()


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
