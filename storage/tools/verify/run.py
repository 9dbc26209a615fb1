"""Verify log directories with all processors: the units of work are segments, the largest first.

A small amount is verified in this process, since starting others takes longer; so is everything with one worker.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from klamm.storage.filesystem import Filesystem
from klamm.storage.tools.verify.directory_check import LogDirCheck, check_together
from klamm.storage.tools.verify.findings import Finding
from klamm.storage.tools.verify.segment_check import SegmentJob, SegmentReport, check_segment

ALONE_BYTES = 64 << 20
"""How much is verified in the time that a pool of processes takes to start."""
QUEUED_PER_WORKER = 4

OnProgress = Callable[[int, int], None]
"""(bytes done, bytes in all)"""


@dataclass(slots=True)
class Verified:
    """The amount of data verified, and the findings."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def problem_count(self) -> int:
        return sum(not finding.is_note for finding in self.findings)


def verify(
    filesystem: Filesystem,
    log_dirs: Sequence[Path],
    *,
    deep: bool,
    workers: int,
    on_progress: OnProgress = lambda done, total: None,
) -> Verified:
    """Verify everything. Raises OSError when a log directory cannot be listed."""
    checks = [LogDirCheck.plan(filesystem, path, deep=deep) for path in log_dirs]
    partitions = {partition.directory: partition for check in checks for partition in check.partitions}
    jobs = sorted((job for partition in partitions.values() for job in partition.jobs), key=lambda job: -job.size_bytes)
    total = sum(job.size_bytes for job in jobs)
    result = Verified(partitions=len(partitions), segments=len(jobs), size_bytes=total)
    done = 0
    for job, report in _reports(filesystem, jobs, total, workers):
        partitions[job.directory].reports.append(report)
        result.batches += report.batches
        result.records += report.records
        done += job.size_bytes
        on_progress(done, total)
    for check in checks:
        found = list(check.findings)
        for partition in check.partitions:
            partition.finish(filesystem)
            found += partition.findings
        result.findings += [finding for finding in found if not (check.is_snapshot and finding.is_note)]
    result.findings += check_together(checks)
    return result


def _reports(
    filesystem: Filesystem, jobs: Sequence[SegmentJob], total: int, workers: int
) -> Iterator[tuple[SegmentJob, SegmentReport]]:
    if workers <= 1 or total <= ALONE_BYTES or len(jobs) == 1:
        for job in jobs:
            yield job, check_segment(job, filesystem)
        return
    waiting = iter(jobs)
    running: dict[Future[SegmentReport], SegmentJob] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context) as pool:
        while True:
            for job in islice(waiting, workers * QUEUED_PER_WORKER - len(running)):
                running[pool.submit(check_segment, job)] = job
            if not running:
                return
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                yield running.pop(future), future.result()
