"""Memory tuning: freed memory goes back to the kernel, and garbage collections stay short.

glibc raises its thresholds with the largest block that was ever freed, up to 32 and 64 MiB: one batch that inflates to
100 MiB would keep that much resident for good. Fixed thresholds switch this off. Blocks from `LARGE_BYTES` on are
mapped and unmapped one by one. That costs page faults, so the usual batch of a megabyte stays below the limit.
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
"""A full collection examines 1,000 x 5 x 5 = 25,000 objects, which takes some 5 ms."""
MANY_OBJECTS = 25_000

MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
USUAL_MAP_COUNT = 65_530


def map_limit() -> int:
    """Return the number of memory maps that the kernel allows a process."""
    try:
        return int(MAX_MAP_COUNT.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return USUAL_MAP_COUNT


def tune_allocator() -> bool:
    """Set the thresholds. Return whether the C library accepted them; others than glibc need no tuning."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        logger.debug("no mallopt in this C library")
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE_BYTES) and mallopt(M_TRIM_THRESHOLD, LARGE_BYTES))


def freeze_collector() -> None:
    """Freeze all current objects when the broker is ready: they stay, so the cyclic collector need not examine them
    again.

    The same holds for objects that survive a full collection later: partitions, groups, offsets. With a million of them
    each such collection would stop the process for 200 ms. A frozen object is freed when nothing refers to it, as most
    are. A cycle that becomes garbage after it was frozen stays, so short-lived objects must not form cycles (closed
    connections do not).
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # almost empty; the next one waits until the remaining objects have grown by a quarter
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    if _freeze_survivors not in gc.callbacks:
        gc.callbacks.append(_freeze_survivors)


def collect_young() -> None:
    """Collect the young objects; called every second.

    The collector counts created objects minus freed ones. Where new objects replace frozen ones, as when retention
    renews ten thousand segments, it would begin only at hundreds of thousands, and stop the process for 100 ms. Does
    nothing in a process without `freeze_collector`.
    """
    if _freeze_survivors not in gc.callbacks:
        return
    gc.collect(1)
    if len(gc.get_objects(2)) > MANY_OBJECTS:
        gc.collect()


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
