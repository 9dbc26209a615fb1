"""The anomalies in a history: those of Jepsen's Kafka workload, and some of our own.

    lost-write             acknowledged, and later ones in the partition are there, but it is not
    unseen                 acknowledged, and not there at the end
    duplicate              one value at two offsets
    inconsistent-offsets   two values at one offset, or an acknowledged value at another offset than was said
    aborted-read           a read_committed reader got a value of an aborted transaction (G1a)
    precommitted-read      a read_committed reader got a value before its transaction was asked to commit
    processed-twice        two values that were made of one source value count
    torn-transaction       some values of a transaction can be read at the end, and others not
    poll-skip              two polls in a row left out a value that is there
    nonmonotonic-poll      a poll went back
    nonmonotonic-send      a value of a producer stands before one that it had acknowledged before
    stale-generation       a commit of a member was accepted after its group had gone on without it
    committed-went-back    the position of a group is one that was replaced, or was never stored
    committed-too-early    a position that was stored in a transaction is seen before that was asked to commit, or after
                           it aborted

Sources: jepsen.tests.kafka, and Adya's names for anomalies that it calls by letters. Nothing uncertain is an anomaly:
an operation without an answer may have happened or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from tests.faults.history.events import Commit, History, Outcome, Place, Poll, Send, Transaction


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that must not happen."""

    kind: str
    text: str


MIN_SENDS = 50
MIN_POLLED = 50


class VoidHistory(AssertionError):
    """Too little happened to show anything."""


def check(history: History, *, minimum: int = MIN_SENDS) -> list[Anomaly]:
    """All anomalies. Raises VoidHistory when there were too few acknowledged writes or reads."""
    acked = sum(send.outcome is Outcome.OK for send in history.sends)
    polled = sum(len(poll.records) for poll in history.polls)
    if acked < minimum or polled < minimum:
        raise VoidHistory(f"{acked} acknowledged writes and {polled} records read are too few to show anything")
    return list(Checker(history).anomalies())


class Checker:
    """The checks of one history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.by_value = {send.value: send for send in history.sends}
        self.places: dict[bytes, set[tuple[Place, int]]] = defaultdict(
            set
        )  # the places and offsets at which each value was seen
        self.values: dict[tuple[Place, int], set[bytes]] = defaultdict(set)  # the values that were seen there
        for place, found in (*history.final.items(), *history.uncommitted.items()):
            self._see(place, found)
        for poll in history.polls:
            self._see(poll.place, poll.records)

    def _see(self, place: Place, records: object) -> None:
        for offset, value in records:  # type: ignore[attr-defined]
            self.places[value].add((place, offset))
            self.values[place, offset].add(value)

    def anomalies(self) -> Iterator[Anomaly]:
        yield from self.duplicates()
        yield from self.inconsistent_offsets()
        yield from self.lost()
        yield from self.aborted_reads()
        yield from self.processed_twice()
        yield from self.torn()
        yield from self.polls()
        yield from self.sends()
        yield from self.stale_generations()
        yield from self.committed()

    # -- the content of the log ----------------------------------------------------------------------------------

    def duplicates(self) -> Iterator[Anomaly]:
        for value, places in self.places.items():
            if len(places) > 1:
                yield Anomaly("duplicate", f"{value!r} stands at {sorted(places)}")

    def inconsistent_offsets(self) -> Iterator[Anomaly]:
        for (place, offset), values in self.values.items():
            if len(values) > 1:
                yield Anomaly("inconsistent-offsets", f"{place} offset {offset} has had {sorted(values)}")
        claimed: dict[tuple[Place, int], Send] = {}
        for send in self.history.sends:
            if send.outcome is not Outcome.OK or send.offset is None:
                continue
            first = claimed.setdefault((send.place, send.offset), send)
            if first is not send:
                text = f"{send.place} offset {send.offset} was acknowledged to {first.value!r} and {send.value!r}"
                yield Anomaly("inconsistent-offsets", text)
            for place, offset in self.places.get(send.value, ()):
                if (place, offset) != (send.place, send.offset):
                    text = f"{send.value!r} was acknowledged at {send.offset}, and stands at {place} {offset}"
                    yield Anomaly("inconsistent-offsets", text)

    def lost(self) -> Iterator[Anomaly]:
        ends = {place: found[-1][0] for place, found in self.history.final.items() if found}
        raw_ends = {place: found[-1][0] for place, found in self.history.uncommitted.items() if found}
        there = {value for found in self.history.final.values() for _, value in found}
        raw = {value for found in self.history.uncommitted.values() for _, value in found}
        for send in self.history.sends:
            if send.outcome is not Outcome.OK:
                continue
            transaction = self._transaction(send)
            if transaction is not None and not transaction.is_committed:
                missing, end = send.value not in raw, raw_ends.get(send.place, -1)  # aborted ones are there, too
            else:
                missing, end = send.value not in there, ends.get(send.place, -1)
            if missing:
                is_passed = send.offset is not None and end > send.offset
                yield Anomaly(
                    "lost-write" if is_passed else "unseen", f"{send.value!r} of {send.place} at {send.offset}"
                )

    # -- transactions -------------------------------------------------------------------------------------------

    def _transaction(self, send: Send | Commit) -> Transaction | None:
        return self.history.transactions[send.transaction] if send.transaction is not None else None

    def aborted_reads(self) -> Iterator[Anomaly]:
        for place, found in self.history.final.items():
            for offset, value in found:
                transaction = self._of(value)
                if transaction is not None and transaction.is_aborted:
                    yield Anomaly("aborted-read", f"{value!r} at {place} {offset}, of {transaction.key}")
        for poll in self.history.polls:
            if not poll.committed_only:
                continue
            for offset, value in poll.records:
                transaction = self._of(value)
                if transaction is None:
                    continue
                if transaction.is_aborted:
                    text = f"{poll.process} got {value!r} at {poll.place} {offset}, of {transaction.key}"
                    yield Anomaly("aborted-read", text)
                elif poll.end < transaction.start:
                    text = f"{poll.process} got {value!r} at {poll.place} {offset} before {transaction.key} committed"
                    yield Anomaly("precommitted-read", text)

    def _of(self, value: bytes) -> Transaction | None:
        send = self.by_value.get(value)
        return self._transaction(send) if send is not None else None

    def processed_twice(self) -> Iterator[Anomaly]:
        made: dict[bytes, bytes] = {}
        for found in self.history.final.values():
            for _, value in found:
                send = self.by_value.get(value)
                if send is not None and send.source is not None:
                    first = made.setdefault(send.source, value)
                    if first != value:
                        yield Anomaly("processed-twice", f"{send.source!r} became {first!r} and {value!r}")

    def torn(self) -> Iterator[Anomaly]:
        there = {value for found in self.history.final.values() for _, value in found}
        parts: dict[str, list[Send]] = defaultdict(list)
        for send in self.history.sends:
            if send.transaction is not None and send.outcome is Outcome.OK:
                parts[send.transaction].append(send)
        for key, sends in parts.items():
            seen = [send.value in there for send in sends]
            if any(seen) and not all(seen):
                missing = [send.value for send in sends if send.value not in there]
                yield Anomaly("torn-transaction", f"{key}: {missing} cannot be read, the others can")

    # -- readers and writers ------------------------------------------------------------------------------------

    def polls(self) -> Iterator[Anomaly]:
        sessions: dict[tuple[str, int, Place], list[Poll]] = defaultdict(list)
        for poll in self.history.polls:
            if poll.records:
                sessions[poll.process, poll.session, poll.place].append(poll)
        for (process, _, place), polls in sessions.items():
            committed_only = polls[0].committed_only
            there = self.history.final if committed_only else self.history.uncommitted
            known = {offset for offset, _ in there.get(place, ())}
            offsets = [polls[0].position - 1, *(offset for poll in polls for offset, _ in poll.records)]
            for before, after in pairwise(offsets):
                if after <= before:
                    yield Anomaly("nonmonotonic-poll", f"{process} read {place} {after} after {before}")
                else:
                    skipped = [offset for offset in range(before + 1, after) if offset in known]
                    if skipped:
                        yield Anomaly("poll-skip", f"{process} read {place} {after} after {before}, not {skipped[:5]}")

    def sends(self) -> Iterator[Anomaly]:
        by_process: dict[tuple[str, Place], list[Send]] = defaultdict(list)
        for send in self.history.sends:
            if send.outcome is Outcome.OK and send.offset is not None:
                by_process[send.process, send.place].append(send)
        for (process, place), sends in by_process.items():
            for before, after in pairwise(sends):
                assert before.offset is not None and after.offset is not None
                if after.offset <= before.offset:
                    text = f"{process} wrote {after.value!r} to {place} at {after.offset}, after one at {before.offset}"
                    yield Anomaly("nonmonotonic-send", text)

    # -- positions of groups ------------------------------------------------------------------------------------

    def stale_generations(self) -> Iterator[Anomaly]:
        accepted = [
            commit for commit in self.history.commits if commit.outcome is Outcome.OK and commit.generation >= 0
        ]
        for commit in accepted:
            newer = [
                other
                for other in accepted
                if other.group == commit.group and other.generation > commit.generation and other.end < commit.start
            ]
            if newer:
                text = f"{commit.process} committed {commit.offset} in generation {commit.generation} after one of "
                yield Anomaly("stale-generation", f"{text}{newer[-1].generation}")

    def committed(self) -> Iterator[Anomaly]:
        stored: dict[tuple[str, Place], list[Commit]] = defaultdict(list)
        for commit in self.history.commits:
            stored[commit.group, commit.place].append(commit)
        for seen in self.history.committed:
            commits = stored[seen.group, seen.place]
            candidates = [commit for commit in commits if commit.offset == seen.offset]
            what = f"{seen.process} got {seen.offset} for {seen.group} {seen.place}"
            if any(self._may_stand(commit, commits, seen.start, seen.end) for commit in candidates):
                continue
            if seen.offset < 0 and not any(self._decided(commit)[1] < seen.start for commit in commits):
                continue
            if any(self._decided(commit)[0] > seen.end for commit in candidates):
                yield Anomaly("committed-too-early", what)
            else:
                yield Anomaly("committed-went-back", what)

    def _decided(self, commit: Commit) -> tuple[float, float]:
        """Return the time from which a commit may count, and the time from which it certainly does; infinite: never."""
        if commit.outcome is Outcome.FAILED:
            return inf, inf
        transaction = self._transaction(commit)
        if transaction is None:
            return commit.start, commit.end if commit.outcome is Outcome.OK else inf
        if transaction.is_aborted:
            return inf, inf
        certain = transaction.is_committed and commit.outcome is Outcome.OK
        return transaction.start, transaction.end if certain else inf

    def _may_stand(self, commit: Commit, commits: list[Commit], start: float, end: float) -> bool:
        """Return whether a commit may be the one returned between `start` and `end`: it counts by then, and no commit
        that began when it certainly counted has certainly replaced it."""
        since, surely = self._decided(commit)
        if since > end:
            return False
        return not any(
            other is not commit and other.start > surely and self._decided(other)[1] < start for other in commits
        )
