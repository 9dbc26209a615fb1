"""Retention against a list of batches, while the clock goes on and jumps by up to a day either way.

Each pass computes from the list which segments may be deleted. A jump, at the moment at which it happens, lets no
segment go that could not have gone before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.retention import JUMP_MS, TRUST_AFTER_SECONDS, TrustedTime, breach, due
from tests.storage.batches import advance, all_offsets, batch, delete_unreachable, open_log
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True)
class Written:
    offset: int
    timestamp: int
    size_bytes: int


class RetentionMachine(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.integers(80, 500),
        retention_ms=st.sampled_from([-1, HOUR_MS, 7 * HOUR_MS, 2 * DAY_MS]),
        retention_bytes=st.sampled_from([-1, 0, 300, 1500]),
    )
    def begin(self, segment_bytes: int, retention_ms: int, retention_bytes: int) -> None:
        self.clock = ManualClock()
        self.trusted = TrustedTime(self.clock)
        self.filesystem = MemoryFilesystem(self.clock.wall_ms)
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            segment_ms=DAY_MS,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
        )
        self.model: list[Written] = []
        self.log = self._open(0)

    def _open(self, start: int) -> Log:
        log = open_log(self.filesystem, config=self.config, clock=self.clock, clean=True, log_start_offset=start)
        log.set_high_watermark(log.log_end_offset)
        return log

    @rule(count=st.integers(1, 4), late_ms=st.integers(0, 2 * HOUR_MS), size=st.integers(0, 120))
    def append(self, count: int, late_ms: int, size: int) -> None:
        for _ in range(count):
            timestamp = self.clock.wall_ms() - late_ms
            new = batch(timestamp, value=bytes(size))
            offset = self.log.append_as_leader(new, leader_epoch=0).base_offset
            self.model.append(Written(offset, timestamp, new.size_bytes))
        self.log.set_high_watermark(self.log.log_end_offset)

    @rule(ms=st.integers(0, 12 * HOUR_MS))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(ms=st.integers(JUMP_MS + 1, DAY_MS))
    def the_clock_jumps_ahead(self, ms: int) -> None:
        before = breach(self.log, self.trusted.now_ms())
        self.clock.jump_wall(ms)
        assert breach(self.log, self.trusted.now_ms()) == before

    @rule(ms=st.integers(1, DAY_MS))
    def the_clock_is_set_back(self, ms: int) -> None:
        before = breach(self.log, self.trusted.now_ms())
        self.clock.jump_wall(-ms)
        after = breach(self.log, self.trusted.now_ms())
        assert (after.by_time if after else 0) <= (before.by_time if before else 0)

    @rule()
    def an_hour_makes_any_clock_believed(self) -> None:
        for _ in range(2):
            self.trusted.now_ms()
            self.clock.advance(int(TRUST_AFTER_SECONDS * 1000))
        assert self.trusted.now_ms() == self.clock.wall_ms()

    @rule()
    def retain(self) -> None:
        now_ms = self.trusted.now_ms()
        assert now_ms <= self.clock.wall_ms()
        kept = self._kept(now_ms)
        advance(self.log, now_ms)
        delete_unreachable(self.log)
        self.model = [written for written in self.model if written.offset >= kept]
        assert self.log.local.segments.all[0].base_offset == kept
        assert due(self.log, now_ms) is None

    def _kept(self, now_ms: int) -> int:
        """The log start after a pass."""
        bases = [segment.base_offset for segment in self.log.local.segments.all]
        ends = [*bases[1:], self.log.log_end_offset]
        parts = [[w for w in self.model if base <= w.offset < end] for base, end in zip(bases, ends, strict=True)]
        index = 0
        retention_ms, retention_bytes = self.config.retention_ms, self.config.retention_bytes
        while index < len(parts) and parts[index] and retention_ms >= 0:
            if now_ms - max(written.timestamp for written in parts[index]) <= retention_ms:
                break
            index += 1
        left = sum(written.size_bytes for part in parts[index:] for written in part)
        while index < len(parts) and parts[index] and retention_bytes >= 0:
            left -= sum(written.size_bytes for written in parts[index])
            if left < retention_bytes:
                break
            index += 1
        return bases[index] if index < len(bases) else self.log.log_end_offset

    @rule()
    def restart(self) -> None:
        start = self.log.log_start_offset
        self.log.close()
        self.filesystem.kill()
        self.trusted = TrustedTime(self.clock)
        self.log = self._open(start)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if hasattr(self, "log"):
            assert all_offsets(self.log) == [written.offset for written in self.model]
            assert self.log.local.size_bytes == sum(written.size_bytes for written in self.model)


TestRetentionModel = RetentionMachine.TestCase
TestRetentionModel.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
