"""What a process keeps resident of memory that it has freed."""

from __future__ import annotations

import subprocess
import sys

from klamm.broker.memory import MAX_MAP_COUNT, map_limit

PROGRAM = """
import resource, sys
from pathlib import Path
from klamm.broker.memory import tune_allocator

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

if sys.argv[1] == "tuned":
    assert tune_allocator()
bytes(31 << 20)  # once freed, it makes glibc keep up to twice as much
before = resident()
blocks = [b"x" * (1 << 20) for _ in range(40)]
del blocks
print(resident() - before)
"""


def kept(how: str) -> int:
    return int(subprocess.check_output([sys.executable, "-c", PROGRAM, how], text=True))


def test_freed_blocks_go_back_to_the_kernel() -> None:
    assert kept("tuned") < 8 << 20 < 32 << 20 < kept("as it is")


def test_the_limit_of_maps_is_the_kernels() -> None:
    assert map_limit() == int(MAX_MAP_COUNT.read_text())


COLLECTED = """
import gc
from klamm.broker.memory import freeze_collector

sizes = []
freeze_collector()
gc.callbacks.append(lambda phase, info: sizes.append(sum(map(len, map(gc.get_objects, range(info["generation"] + 1))))))
kept = [[] for _ in range(1_000_000)]
print(max(sizes), gc.get_freeze_count() > 800_000)
"""


def test_no_collection_looks_at_what_has_survived_one() -> None:
    most, is_frozen = subprocess.check_output([sys.executable, "-c", COLLECTED], text=True).split()
    assert int(most) < 200_000
    assert is_frozen == "True"


REPLACED = """
import gc
from klamm.broker.memory import collect_young, freeze_collector

class Segment:
    pass

kept = [Segment() for _ in range(300_000)]
freeze_collector()
sizes = [0]
gc.callbacks.append(lambda phase, info: sizes.append(sum(map(len, map(gc.get_objects, range(info["generation"] + 1))))))
for index in range(len(kept)):
    kept[index] = Segment()
    if index % 10_000 == 0:
        collect_young()
more = [Segment() for _ in range(10_000)]
print(max(sizes))
"""


def test_what_takes_the_place_of_frozen_objects_is_looked_at_in_time() -> None:
    assert int(subprocess.check_output([sys.executable, "-c", REPLACED], text=True)) < 100_000
