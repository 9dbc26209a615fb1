"""The log against a list of batches, through appends, rolls, truncations, flushes, restarts and crashes."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klamm.protocol.records.batch import batches, stamp
from klamm.storage.copies.follower import append_assigned
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from tests.storage.batches import EVERYTHING, batch, delete_unreachable, open_log
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Written:
    """A batch as it must be in the log."""

    base_offset: int
    last_offset: int
    epoch: int
    times: tuple[int, ...]
    data: bytes


class LogMachine(RuleBasedStateMachine):
    @initialize(segment_bytes=st.integers(100, 1500), interval=st.integers(0, 400))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.clock = ManualClock()
        self.filesystem = MemoryFilesystem(self.clock.wall_ms)
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, segment_ms=DAY_MS)
        self.model: list[Written] = []
        self.epoch = 0
        self.start = 0
        self.sequence = 0
        self.log = self._open(clean=False)

    def _open(self, *, clean: bool, recovery_point: int = 0, power_loss: bool = False) -> Log:
        return open_log(
            self.filesystem,
            config=self.config,
            clock=self.clock,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            power_loss=power_loss,
        )

    @property
    def end(self) -> int:
        return self.model[-1].last_offset + 1 if self.model else self.log.local.segments.all[0].base_offset

    @rule(
        times=st.lists(st.integers(0, 50), min_size=1, max_size=5), size=st.integers(0, 150), idempotent=st.booleans()
    )
    def append(self, times: list[int], size: int, idempotent: bool) -> None:
        stamps = [START_MS + time for time in times]
        new = (
            batch(*stamps, value=bytes(size), producer_id=3, epoch=0, sequence=self.sequence)
            if idempotent
            else batch(*stamps, value=bytes(size))
        )
        base_offset = self.log.log_end_offset
        result = self.log.append_as_leader(new, leader_epoch=self.epoch)
        assert not result.duplicate
        assert (result.base_offset, result.last_offset) == (base_offset, base_offset + len(times) - 1)
        self.sequence += len(times) if idempotent else 0
        self.model.append(Written(base_offset, result.last_offset, self.epoch, tuple(stamps), bytes(new.data)))

    @rule(gap=st.integers(0, 3), counts=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def append_with_offsets(self, gap: int, counts: list[int]) -> None:
        """Append batches as a follower fetches them: several with their offsets and epochs, gaps before them."""
        offset, data = self.log.log_end_offset, b""
        for count in counts:
            offset += gap
            new = batch(*[START_MS + 7] * count)
            stamp(memoryview(new.data), offset, self.epoch)
            data += bytes(new.data)
            self.model.append(Written(offset, offset + count - 1, self.epoch, (START_MS + 7,) * count, bytes(new.data)))
            offset += count
        assert append_assigned(self.log, data) == len(counts)

    @rule(ms=st.integers(0, 3 * DAY_MS), jump=st.integers(-DAY_MS, DAY_MS))
    def time_passes(self, ms: int, jump: int) -> None:
        self.clock.advance(ms)
        self.clock.jump_wall(jump)

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 2

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(share=st.integers(0, 100))
    def flush(self, share: int) -> None:
        up_to = self.end * share // 100
        self.log.local.flush(up_to)
        assert self.log.local.recovery_point >= min(up_to, self.end)

    @precondition(lambda self: self.model)
    @rule(share=st.integers(0, 100))
    def truncate(self, share: int) -> None:
        first = self.model[0].base_offset
        offset = first + (self.end - first) * share // 100
        kept = [written for written in self.model if written.last_offset < offset]
        if offset < self.end:
            self.epoch += 1
        self.log.truncate_to(offset)
        self.model = kept
        self.start = min(self.start, self.log.log_end_offset)
        self._find_sequence()

    def _find_sequence(self) -> None:
        """Let the producer continue after the last of its remaining batches."""
        producer = self.log.producers.get(3)
        self.sequence = producer.last_sequence + 1 if producer is not None else 0

    @rule(share=st.integers(0, 100))
    def advance_log_start(self, share: int) -> None:
        self.start = max(self.start, self.start + (self.end - self.start) * share // 100)
        self.log.advance_log_start(self.start)
        self.log.local.flush()  # as LogDir.checkpoint does before it writes the log start

    @rule()
    def delete_unreachable(self) -> None:
        delete_unreachable(self.log)
        first = self.log.local.segments.all[0].base_offset
        assert first <= self.start
        self.model = [written for written in self.model if written.base_offset >= first]

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.filesystem.kill()
        self.log = self._open(clean=True)
        assert self.log.local.recovery_point == self.log.log_end_offset

    @rule(share=st.integers(0, 100))
    def process_dies(self, share: int) -> None:
        recovery_point = self.log.local.recovery_point * share // 100
        self.filesystem.kill()
        self.log = self._open(clean=False, recovery_point=recovery_point)

    @rule(share=st.integers(0, 100), seed=st.none() | st.integers(0, 1000))
    def power_cut(self, share: int, seed: int | None) -> None:
        durable = self.log.local.recovery_point
        self.filesystem.crash(random.Random(seed) if seed is not None else None)
        self.log = self._open(clean=False, recovery_point=durable * share // 100, power_loss=True)
        end = self.log.log_end_offset
        assert end >= durable
        first = self.log.local.segments.all[0].base_offset
        self.model = [w for w in self.model if first <= w.base_offset < end]  # unsynced deletions may come back
        self._find_sequence()

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_end_offset == self.end
        assert self.log.log_start_offset == self.start
        assert 0 <= self.log.local.recovery_point <= self.end
        found = []
        offset = self.start
        while region := self.log.read_records(offset, max_bytes=1000, max_offset=EVERYTHING).region:
            data = region.read()
            for position, head in batches(data):
                found.append(data[position : position + head.size_bytes])
                offset = head.last_offset + 1
        visible = [written for written in self.model if written.last_offset >= self.start]
        assert found == [written.data for written in visible]
        for asked in (START_MS, START_MS + 25, START_MS + 51):
            expected = next(
                (
                    (time, written.base_offset + index, written.epoch)
                    for written in visible
                    for index, time in enumerate(written.times)
                    if time >= asked and written.base_offset + index >= self.start
                ),
                None,
            )
            assert self.log.timestamp_search(asked).run() == expected
        for written in visible[-3:]:
            assert self.log.leader_epochs.epoch_of(written.last_offset) == written.epoch


TestLogModel = LogMachine.TestCase
TestLogModel.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
