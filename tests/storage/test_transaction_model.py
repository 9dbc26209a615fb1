"""Transactions in the log against a list of them: random histories with rolls, truncations, restarts and crashes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klamm.storage import paths
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.transaction_index import AbortedTransaction, entries
from tests.storage.batches import batch, end_transaction, open_log, transact
from tests.storage.read_committed import read_committed
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

PRODUCERS = (1, 2, 3)
OPEN, COMMITTED, ABORTED = range(3)


@dataclass
class Transaction:
    """A transaction of a producer, or (producer 0) records outside of any; `marker` is the offset of its end."""

    producer_id: int
    offsets: list[int] = field(default_factory=list)
    marker: int = -1
    outcome: int = OPEN
    stable: int = -1  # the value in the transaction index

    @property
    def first(self) -> int:
        return self.offsets[0]


class TransactionMachine(RuleBasedStateMachine):
    @initialize(segment_bytes=st.integers(150, 900), strict=st.booleans())
    def begin(self, segment_bytes: int, strict: bool) -> None:
        self.clock = ManualClock()
        self.filesystem = MemoryFilesystem(self.clock.wall_ms)
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=100)
        self.version = 2 if strict else 1
        self.transactions: list[Transaction] = []
        self.plain: list[int] = []
        self.high_watermark = self.end = 0
        self.log = self._open(clean=False)

    def _open(self, *, clean: bool, recovery_point: int = 0, power_loss: bool = False) -> Log:
        log = open_log(
            self.filesystem,
            config=self.config,
            clock=self.clock,
            clean=clean,
            recovery_point=recovery_point,
            power_loss=power_loss,
        )
        self._commit_everything(log)
        return log

    def _commit_everything(self, log: Log) -> None:
        """Commit all, as the broker does after a start. Unreplicated transactions are forgotten."""
        self.high_watermark = log.log_end_offset
        log.set_high_watermark(self.high_watermark)

    def open_of(self, producer_id: int) -> Transaction | None:
        return next((t for t in self.transactions if t.producer_id == producer_id and t.outcome == OPEN), None)

    @rule(producer_id=st.sampled_from(PRODUCERS), count=st.integers(1, 3))
    def append(self, producer_id: int, count: int) -> None:
        known = self.log.producers.get(producer_id)
        epoch, sequence = (known.epoch, known.last_sequence + 1) if known is not None else (0, 0)
        result = transact(self.log, producer_id, epoch, sequence, *[START_MS] * count)
        assert result.base_offset == self.end
        current = self.open_of(producer_id)
        if current is None:
            current = Transaction(producer_id)
            self.transactions.append(current)
        current.offsets += range(self.end, self.end + count)
        self.end += count

    @rule()
    def append_outside(self) -> None:
        self.plain.append(self.log.append_as_leader(batch(), leader_epoch=0).base_offset)
        self.end += 1

    @rule(producer_id=st.sampled_from(PRODUCERS), commit=st.booleans())
    def finish(self, producer_id: int, commit: bool) -> None:
        current = self.open_of(producer_id)
        known = self.log.producers.get(producer_id)
        epoch = (known.epoch if known is not None else 0) + (self.version == 2)
        marker = end_transaction(self.log, producer_id, epoch, is_commit=commit, transaction_version=self.version)
        assert marker.base_offset == self.end
        self.end += 1
        if current is not None:
            current.marker, current.outcome = self.end - 1, COMMITTED if commit else ABORTED
            current.stable = min((t.first for t in self.transactions if t.outcome == OPEN), default=self.end)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.local.flush()

    @rule(share=st.integers(0, 100))
    def advance_high_watermark(self, share: int) -> None:
        self.high_watermark += (self.end - self.high_watermark) * share // 100
        self.log.set_high_watermark(self.high_watermark)

    @precondition(lambda self: self.end)
    @rule(share=st.integers(0, 100))
    def truncate(self, share: int) -> None:
        self.log.truncate_to(self.end * share // 100)
        self._cut(self.log.log_end_offset)
        self._commit_everything(self.log)

    def _cut(self, end: int) -> None:
        assert end <= self.end
        self.end = end
        self.plain = [offset for offset in self.plain if offset < end]
        for transaction in self.transactions:
            transaction.offsets = [offset for offset in transaction.offsets if offset < end]
            if transaction.marker >= end:
                transaction.marker, transaction.outcome = -1, OPEN
        self.transactions = [t for t in self.transactions if t.offsets]

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.filesystem.kill()
        self.log = self._open(clean=True)

    @rule(share=st.integers(0, 100))
    def process_dies(self, share: int) -> None:
        recovery_point = self.log.local.recovery_point * share // 100
        self.filesystem.kill()
        self.log = self._open(clean=False, recovery_point=recovery_point)

    @rule(seed=st.none() | st.integers(0, 1000))
    def power_cut(self, seed: int | None) -> None:
        durable = self.log.local.recovery_point
        self.filesystem.crash(random.Random(seed) if seed is not None else None)
        self.log = self._open(clean=False, recovery_point=durable, power_loss=True)
        assert self.log.log_end_offset >= durable
        self.log.local.flush()  # else the cut part may come back when the power goes again
        self._cut(self.log.log_end_offset)

    @precondition(lambda self: any(segment.transaction_index.count for segment in self.log.local.segments.all))
    @rule(seed=st.integers(0, 1000), how=st.sampled_from(("gone", "short", "torn", "wrong")), clean=st.booleans())
    def an_index_is_damaged(self, seed: int, how: str, clean: bool) -> None:
        """Everything else is as a clean close leaves it."""
        self.log.close()
        self.filesystem.kill()
        names = [
            e.name
            for e in self.filesystem.list_directory(self.log.local.directory)
            if e.name.endswith(paths.TXN_INDEX_SUFFIX)
        ]
        path = self.log.local.directory / random.Random(seed).choice(sorted(names))
        content = self.filesystem.read_bytes(path)
        if how == "gone":
            self.filesystem.unlink(path)
        else:
            file = self.filesystem.open_file(path)
            if how == "wrong" and content:
                file.write_at(bytes([content[seed % len(content)] ^ 1]), seed % len(content))
            elif how == "short":
                file.truncate(max(0, len(content) - 34))
            else:
                file.truncate(max(0, len(content) - 1))
        self.log = self._open(clean=clean, recovery_point=self.end)
        if clean and content:
            assert self.filesystem.read_bytes(path) == content

    @invariant()
    def is_what_the_model_is(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.log_end_offset == self.end
        assert log.high_watermark == self.high_watermark
        unstable = [t.first for t in self.transactions if t.outcome == OPEN or t.marker >= self.high_watermark]
        stable = min([self.high_watermark, *unstable])
        assert log.last_stable_offset == stable
        ongoing = {p.producer_id: p.first_transaction_offset for p in log.producers if p.first_transaction_offset >= 0}
        assert ongoing == {t.producer_id: t.first for t in self.transactions if t.outcome == OPEN}
        committed = [offset for t in self.transactions if t.outcome == COMMITTED for offset in t.offsets]
        expected = sorted(offset for offset in [*committed, *self.plain] if offset < stable)
        for max_bytes in (100, 1 << 20):
            assert [record.offset for record in read_committed(log, max_bytes=max_bytes)] == expected
        for segment, following in zip(log.local.segments.all, [*log.local.segments.all[1:], None], strict=True):
            end = following.base_offset if following is not None else self.end
            index = segment.transaction_index
            assert [index.entry(at) for at in range(index.count)] == [
                AbortedTransaction(t.producer_id, t.first, t.marker, t.stable)
                for t in sorted(self.transactions, key=lambda t: t.marker)
                if t.outcome == ABORTED and segment.base_offset <= t.marker < end
            ]
            if index.count and following is not None and end < log.local.recovery_point:
                assert len(list(entries(self.filesystem.read_bytes(index.path)))) == index.count


TestTransactionModel = TransactionMachine.TestCase
TestTransactionModel.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
