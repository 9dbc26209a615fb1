"""The state machine of transactions, with a store that answers when the test lets it, and a clock moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.coordinator.runtime.timer_queue import TimerQueue
from klamm.broker.coordinator.runtime.types import Done, Now, TimerKey
from klamm.broker.coordinator.transaction import records
from klamm.broker.coordinator.transaction.producer_ids import NO_PRODUCER_ID
from klamm.broker.coordinator.transaction.states import NUMBERS, State, render
from klamm.broker.coordinator.transaction.transaction import (
    LAST_EPOCH,
    MAX_EPOCH,
    Markers,
    ProducerIdAndEpoch,
    TopicPartition,
    Transaction,
)
from klamm.broker.coordinator.transaction.transactions import RETRY_MS, Transactions
from klamm.protocol.errors import ErrorCode

DOCS = Path(__file__).parents[4] / "docs" / "transactions.md"
T0: TopicPartition = ("t", 0)
T1: TopicPartition = ("t", 1)
TIMEOUT_MS = 1000
NONE = ErrorCode.NONE


class World:
    """The machine and what surrounds it. With `hold` the store answers only when `release` is called."""

    def __init__(self) -> None:
        self.ms = 0
        self.log: list[Transaction | None] = []
        self.written: list[tuple[TopicPartition, Markers]] = []
        self.hold = False
        self.failure = NONE
        self.held: list[tuple[Done, ErrorCode]] = []
        self.offline: set[TopicPartition] = set()
        self.ids = 100
        self.ids_at_hand = True
        self.timers: TimerQueue[TimerKey] = TimerQueue()
        self.machine = self.make()

    def make(self) -> Transactions:
        return Transactions(
            store=self.store,
            write_markers=self.write_markers,
            take_producer_id=self.take_producer_id,
            timers=self.timers,
        )

    def take_producer_id(self) -> int:
        if not self.ids_at_hand:
            return NO_PRODUCER_ID
        self.ids += 1
        return self.ids

    def worn(self, epoch: int, version: int = 2) -> ProducerIdAndEpoch:
        """The producer of `x` in one of the last epochs of its id."""
        identity = self.started()
        self.machine.forget("x")
        found = Transaction(
            "x", identity.producer_id, TIMEOUT_MS, self.now.wall_ms, producer_epoch=epoch, client_version=version
        )
        self.machine.take(found, self.now)
        return ProducerIdAndEpoch(identity.producer_id, epoch)

    def current(self) -> ProducerIdAndEpoch:
        found = self.machine.get("x")
        assert found is not None
        return ProducerIdAndEpoch(found.producer_id, found.producer_epoch)

    @property
    def now(self) -> Now:
        return Now(self.ms, 1_000_000 + self.ms)

    def store(self, transactional_id: str, transaction: Transaction | None, done: Done, now: Now) -> None:
        if self.hold:
            self.log.append(transaction)
            self.held.append((done, self.failure))
            return
        if self.failure is NONE:
            self.log.append(transaction)
        done(self.failure, now)

    def release(self) -> None:
        held, self.held = self.held, []
        for done, code in held:
            done(code, self.now)

    def write_markers(self, markers: Markers, done: Callable[[frozenset[TopicPartition], Now], None], now: Now) -> None:
        left = markers.partitions & self.offline
        self.written += [(partition, markers) for partition in sorted(markers.partitions - left)]
        done(frozenset(left), now)

    def pass_ms(self, ms: int) -> None:
        self.ms += ms
        while (key := self.timers.pop(self.ms)) is not None:
            self.machine.due(key, self.now)

    def restart(self) -> None:
        """Start again from the log."""
        last = {entry.transactional_id: entry for entry in self.log if entry is not None}
        self.held = []
        self.timers = TimerQueue()
        self.machine = self.make()
        for transaction in last.values():
            _, stored = records.decode(
                records.transaction_key(transaction.transactional_id), records.transaction_value(transaction)
            )
            assert stored is not None
            self.machine.take(stored, self.now)
        for transactional_id in last:
            self.machine.resume(transactional_id, self.now)

    # Requests

    def init(self, name: str = "x", expected: ProducerIdAndEpoch | None = None) -> tuple[ErrorCode, ProducerIdAndEpoch]:
        answered: list[tuple[ErrorCode, ProducerIdAndEpoch]] = []
        self.ids += 1
        self.machine.init_producer_id(
            name, TIMEOUT_MS, expected, self.ids, self.now, lambda *what: answered.append(what)
        )
        return answered[0]

    def started(self, name: str = "x") -> ProducerIdAndEpoch:
        code, identity = self.init(name)
        assert code is NONE
        return identity

    def add(
        self, identity: ProducerIdAndEpoch, *partitions: TopicPartition, name: str = "x", version: int = 2
    ) -> ErrorCode | None:
        answered: list[ErrorCode] = []
        self.machine.add_partitions(name, identity, frozenset(partitions), version, self.now, answered.append)
        return answered[0] if answered else None

    def end(
        self, identity: ProducerIdAndEpoch, *, commit: bool = True, name: str = "x", version: int = 2
    ) -> tuple[ErrorCode, ProducerIdAndEpoch] | None:
        answered: list[tuple[ErrorCode, ProducerIdAndEpoch]] = []
        self.ids += 1
        self.machine.end(
            name, identity, version, self.ids, self.now, lambda *what: answered.append(what), commit=commit
        )
        return answered[0] if answered else None

    def state(self) -> State:
        found = self.machine.get("x")
        assert found is not None
        return found.state


@pytest.fixture
def world() -> World:
    return World()


def test_the_page_about_transactions_is_current() -> None:
    assert DOCS.read_text() == render(), (
        "run: python -m klamm.broker.coordinator.transaction.states > docs/transactions.md"
    )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_every_partition_gets_its_marker_before_the_transaction_is_complete(
    world: World, version: int, commit: bool
) -> None:
    identity = world.started()
    assert world.add(identity, T0, version=version) is NONE
    assert world.add(identity, T1, version=version) is NONE
    assert world.end(identity, commit=commit, version=version) is not None
    epoch = identity.producer_epoch + (version == 2)
    assert [(partition, mark.producer_epoch, mark.commit) for partition, mark in world.written] == [
        (T0, epoch, commit),
        (T1, epoch, commit),
    ]
    states = [entry.state for entry in world.log if entry is not None]
    prepared = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    complete = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
    assert states == [State.EMPTY, State.ONGOING, State.ONGOING, prepared, complete]


def test_version_2_goes_on_with_the_next_epoch_and_fences_the_one_before(world: World) -> None:
    identity = world.started()
    world.add(identity, T0)
    assert world.end(identity) == (NONE, ProducerIdAndEpoch(identity.producer_id, 1))
    assert world.add(identity, T0) is ErrorCode.PRODUCER_FENCED
    assert world.add(ProducerIdAndEpoch(identity.producer_id, 1), T0) is NONE


def test_version_2_aborts_a_transaction_without_partitions_and_commits_none(world: World) -> None:
    identity = world.started()
    assert world.end(identity) == (ErrorCode.INVALID_TXN_STATE, ProducerIdAndEpoch())
    assert world.end(identity, commit=False) == (NONE, ProducerIdAndEpoch(identity.producer_id, 1))
    assert world.end(identity, commit=False) == (NONE, ProducerIdAndEpoch(identity.producer_id, 1))
    assert world.written == []


def test_an_end_that_comes_twice_is_answered_as_the_first_time(world: World) -> None:
    identity = world.started()
    world.add(identity, T0)
    first = world.end(identity)
    written = list(world.written)
    assert world.end(identity) == first
    assert world.end(identity, commit=False) == (ErrorCode.INVALID_TXN_STATE, ProducerIdAndEpoch())
    assert world.written == written


def test_the_client_is_answered_when_the_decision_is_stored_and_not_before(world: World) -> None:
    identity = world.started()
    world.add(identity, T0)
    world.hold = True
    assert world.end(identity) is None
    assert world.written == []
    assert world.add(identity, T1) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.release()
    assert len(world.written) == 1
    assert world.state() is State.PREPARE_COMMIT  # the second record is not stored yet
    world.release()
    assert world.state() is State.COMPLETE_COMMIT


def test_a_decision_that_cannot_be_stored_decides_nothing(world: World) -> None:
    identity = world.started()
    world.add(identity, T0)
    world.failure = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.end(identity) == (ErrorCode.NOT_COORDINATOR, ProducerIdAndEpoch())
    assert world.written == []
    assert world.state() is State.ONGOING
    world.failure = NONE
    assert world.end(identity, commit=False) == (NONE, ProducerIdAndEpoch(identity.producer_id, 1))


def test_markers_are_written_again_where_they_could_not_be(world: World) -> None:
    identity = world.started()
    world.add(identity, T0, T1)
    world.offline = {T1}
    assert world.end(identity) == (NONE, ProducerIdAndEpoch(identity.producer_id, 1))
    assert world.state() is State.PREPARE_COMMIT
    assert world.machine.unmarked("x") == {T1}
    assert world.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, ProducerIdAndEpoch())
    world.pass_ms(RETRY_MS)
    assert world.state() is State.PREPARE_COMMIT
    world.offline = set()
    world.pass_ms(RETRY_MS)
    assert world.state() is State.COMPLETE_COMMIT
    assert [partition for partition, _ in world.written] == [T0, T1]


def test_a_record_of_completion_that_cannot_be_stored_is_tried_again(world: World) -> None:
    identity = world.started()
    world.add(identity, T0)
    world.hold = True
    world.end(identity)
    world.failure = ErrorCode.KAFKA_STORAGE_ERROR
    world.release()  # the decision; its completion fails
    world.release()
    assert world.state() is State.PREPARE_COMMIT
    world.hold, world.failure = False, NONE
    world.pass_ms(RETRY_MS)
    assert world.state() is State.COMPLETE_COMMIT
    assert len(world.written) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_second_producer_aborts_the_transaction_of_the_first_and_fences_it(world: World, version: int) -> None:
    identity = world.started()
    world.add(identity, T0, version=version)
    assert world.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, ProducerIdAndEpoch())
    assert [(partition, mark.commit) for partition, mark in world.written] == [(T0, False)]
    assert world.init() == (NONE, ProducerIdAndEpoch(identity.producer_id, identity.producer_epoch + 2))
    assert world.end(identity, version=version) == (ErrorCode.PRODUCER_FENCED, ProducerIdAndEpoch())


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_takes_too_long_is_aborted(world: World, version: int) -> None:
    identity = world.started()
    world.add(identity, T0, version=version)
    world.pass_ms(TIMEOUT_MS - 1)
    assert world.state() is State.ONGOING
    world.add(identity, T1, version=version)  # does not give it more time
    world.pass_ms(1)
    assert world.state() is State.COMPLETE_ABORT
    assert [mark.commit for _, mark in world.written] == [False, False]
    assert world.end(identity, version=version) is not None
    assert world.add(identity, T0, version=version) is ErrorCode.PRODUCER_FENCED


def test_the_next_transaction_has_its_own_time(world: World) -> None:
    identity = world.started()
    world.add(identity, T0, version=1)
    world.pass_ms(TIMEOUT_MS - 1)
    world.end(identity, version=1)
    world.add(identity, T0, version=1)
    world.pass_ms(TIMEOUT_MS - 1)
    assert world.state() is State.ONGOING
    world.pass_ms(1)
    assert world.state() is State.COMPLETE_ABORT


EPOCHS = [LAST_EPOCH - 1, LAST_EPOCH, MAX_EPOCH]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("epoch", EPOCHS)
def test_a_transaction_in_one_of_the_last_epochs_ends(world: World, epoch: int, commit: bool, version: int) -> None:
    worn = world.worn(epoch)
    world.add(worn, T0, version=version)
    ended = world.end(worn, commit=commit, version=version)
    assert ended is not None
    assert ended[0] is NONE
    marked = min(epoch + version - 1, MAX_EPOCH)
    assert [(mark.producer_id, mark.producer_epoch) for _, mark in world.written] == [(worn.producer_id, marked)]
    if version == 1:
        assert world.current() == worn
    elif epoch < LAST_EPOCH:
        assert world.current() == ended[1] == (worn.producer_id, epoch + 1)
    else:
        assert world.current() == ended[1] == (world.ids, 0)
        assert world.add(ended[1], T0) is NONE


@pytest.mark.parametrize("how", ["time", "init"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("epoch", EPOCHS)
def test_the_broker_s_own_abort_in_one_of_the_last_epochs(world: World, epoch: int, version: int, how: str) -> None:
    world.machine.version = version
    worn = world.worn(epoch)
    world.add(worn, T0, version=version)
    if how == "time":
        world.pass_ms(TIMEOUT_MS)
    else:
        assert world.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, ProducerIdAndEpoch())
    assert world.state() is State.COMPLETE_ABORT
    assert [mark.producer_epoch for _, mark in world.written] == [min(epoch + 1, MAX_EPOCH)]
    aborted = world.current()
    assert aborted == ((world.ids, 0) if version == 2 and epoch >= LAST_EPOCH else (worn[0], min(epoch + 1, MAX_EPOCH)))
    code, following = world.init()
    assert code is NONE
    fresh = ProducerIdAndEpoch(world.ids, 0)
    assert following == (fresh if aborted.producer_epoch >= LAST_EPOCH else (aborted[0], aborted[1] + 1))
    assert world.add(following, T0, version=version) is NONE
    assert world.end(following, version=version) is not None
    assert world.state() is State.COMPLETE_COMMIT


def test_an_abort_that_needs_a_producer_id_waits_for_one(world: World) -> None:
    worn = world.worn(LAST_EPOCH)
    world.add(worn, T0)
    world.ids_at_hand = False
    world.pass_ms(TIMEOUT_MS)
    assert world.state() is State.ONGOING
    world.ids_at_hand = True
    world.pass_ms(RETRY_MS)
    assert world.state() is State.COMPLETE_ABORT
    assert world.machine.timed_out_count == 1


@pytest.mark.parametrize("how", ["end", "time"])
def test_a_producer_that_did_not_hear_of_its_new_id_asks_again(world: World, how: str) -> None:
    worn = world.worn(LAST_EPOCH)
    world.add(worn, T0)
    if how == "end":
        world.end(worn, commit=False)
    else:
        world.pass_ms(TIMEOUT_MS)
    following = ProducerIdAndEpoch(world.ids, 0)
    assert world.end(worn, commit=False) == (NONE, following)
    assert world.init("x", worn) == (NONE, following)
    assert world.add(following, T0) is NONE
    assert world.end(worn, commit=False) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ProducerIdAndEpoch())
    assert world.init("x", worn) == (ErrorCode.PRODUCER_FENCED, ProducerIdAndEpoch())
    assert world.state() is State.ONGOING


@pytest.mark.parametrize("epoch", EPOCHS)
def test_a_new_producer_gets_a_new_id_when_the_old_one_has_no_epochs(world: World, epoch: int) -> None:
    worn = world.worn(epoch)
    assert world.machine.needs_producer_id("x") == (epoch >= LAST_EPOCH)
    following = ProducerIdAndEpoch(worn.producer_id, LAST_EPOCH)
    if epoch >= LAST_EPOCH:
        following = ProducerIdAndEpoch(world.ids + 1, 0)
    assert world.init() == (NONE, following)


def test_the_last_epoch_is_given_again_to_the_producer_that_lost_the_answer(world: World) -> None:
    worn = world.worn(LAST_EPOCH - 1)
    last = ProducerIdAndEpoch(worn.producer_id, LAST_EPOCH)
    assert world.init("x", worn) == (NONE, last)
    assert world.init("x", worn) == (NONE, last)
    other = ProducerIdAndEpoch(worn.producer_id, 7)
    assert world.init("x", other) == (ErrorCode.PRODUCER_FENCED, ProducerIdAndEpoch())


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_of_version_1_after_the_broker_s_abort_is_fenced(world: World, commit: bool) -> None:
    identity = world.started()
    world.add(identity, T0, version=1)
    world.pass_ms(TIMEOUT_MS)
    assert world.end(identity, commit=commit, version=1) == (ErrorCode.PRODUCER_FENCED, ProducerIdAndEpoch())


def test_the_version_of_an_end_is_that_of_its_request(world: World) -> None:
    identity = world.started()
    world.add(identity, T0, version=1)
    assert world.end(identity, version=1) == (NONE, identity)
    assert world.end(identity, version=2) == (ErrorCode.INVALID_TXN_STATE, ProducerIdAndEpoch())
    following = ProducerIdAndEpoch(identity.producer_id, identity.producer_epoch + 1)
    assert world.end(identity, commit=False, version=2) == (NONE, following)
    assert world.end(following, commit=False, version=1) == (NONE, following)
    assert world.end(identity, commit=False, version=1) == (ErrorCode.PRODUCER_FENCED, ProducerIdAndEpoch())


def test_a_fenced_producer_does_not_get_the_epoch_of_its_successor(world: World) -> None:
    fenced = world.started()
    identity = world.started()
    world.add(identity, T0, version=1)
    world.end(identity, version=1)
    assert world.end(fenced) == (ErrorCode.PRODUCER_FENCED, ProducerIdAndEpoch())


def test_verification_tells_what_is_part_of_the_transaction(world: World) -> None:
    identity = world.started()
    verify = world.machine.verify
    assert verify("x", identity, T0) is ErrorCode.TRANSACTION_ABORTABLE
    world.add(identity, T0)
    assert verify("x", identity, T0) is NONE
    assert verify("x", identity, T1) is ErrorCode.TRANSACTION_ABORTABLE
    assert verify("x", ProducerIdAndEpoch(identity.producer_id, 7), T0) is ErrorCode.PRODUCER_FENCED
    assert verify("x", ProducerIdAndEpoch(1, 0), T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert verify("none", identity, T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    world.offline = {T0}
    world.end(identity, version=1)
    assert verify("x", identity, T0) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_ids_that_nobody_uses_are_forgotten(world: World) -> None:
    identity = world.started()
    world.started("y")
    world.add(identity, T0)
    world.pass_ms(10)
    assert world.machine.expire(world.now.wall_ms - 10, world.now, 9) == ["y"]
    assert world.machine.get("y") is None
    assert world.log[-1] is None
    assert world.state() is State.ONGOING


def test_ids_are_forgotten_some_at_a_time(world: World) -> None:
    """The loop turns in between; and ids with a tombstone that cannot be stored do not cause the next look."""
    for number in range(5):
        world.started(f"x{number}")
    world.failure = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.machine.expire(world.now.wall_ms, world.now, 2) == [] and len(world.machine) == 5
    world.failure = NONE
    assert [len(world.machine.expire(world.now.wall_ms, world.now, 2)) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_decided_is_completed_after_a_crash(world: World, commit: bool) -> None:
    identity = world.started()
    world.add(identity, T0, T1)
    world.hold = True
    world.end(identity, commit=commit)
    world.hold = False
    world.restart()
    assert {partition for partition, _ in world.written} == {T0, T1}
    assert {mark.commit for _, mark in world.written} == {commit}
    assert world.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)


def test_what_was_not_decided_gets_the_rest_of_its_time_after_a_crash(world: World) -> None:
    identity = world.started()
    world.add(identity, T0)
    world.ms += TIMEOUT_MS // 2
    world.restart()
    world.pass_ms(TIMEOUT_MS // 2 - 1)
    assert world.state() is State.ONGOING
    world.pass_ms(1)
    assert world.state() is State.COMPLETE_ABORT


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["init", "resume", "add", "commit", "abort", "wait", "offline", "online", "crash"]),
            st.integers(0, 1),
            st.sampled_from([1, 2]),
        ),
        max_size=40,
    )
)
def test_the_outcome_that_a_producer_got_is_the_outcome(steps: list[tuple[str, int, int]]) -> None:
    """Two producers with one transactional id: a transaction has one outcome, on all its partitions, and it is the
    one that the producer got as an answer; a fenced producer never ends one."""
    world = World()
    held: list[ProducerIdAndEpoch] = [ProducerIdAndEpoch()] * 2
    promised: list[tuple[ProducerIdAndEpoch, bool]] = []
    for what, index, version in steps:
        identity = held[index]
        if what in ("init", "resume"):
            code, given_to = world.init("x", identity if what == "resume" and identity.producer_id >= 0 else None)
            if code is NONE:
                assert given_to != held[1 - index], "two producers have the same epoch"
                held[index] = given_to
        elif what == "add":
            world.add(identity, (f"t{index}", version), version=version)
        elif what in ("commit", "abort"):
            before = world.machine.get("x")
            answered = world.end(identity, commit=what == "commit", version=version)
            if answered is not None and answered[0] is NONE:
                assert before is not None
                if before.state is State.ONGOING:
                    promised.append((identity, what == "commit"))
                if version == 2:
                    held[index] = answered[1]
        elif what == "wait":
            world.pass_ms(TIMEOUT_MS // 2)
        elif what == "offline":
            world.offline = {("t0", 1)}
        elif what == "online":
            world.offline = set()
        else:
            world.restart()
    world.offline = set()
    world.pass_ms(RETRY_MS)
    outcomes: dict[tuple[int, int], set[bool]] = {}
    for _, mark in world.written:
        if mark.version == 2:  # older transactions of one producer share its epoch
            outcomes.setdefault((mark.producer_id, mark.producer_epoch), set()).add(mark.commit)
    logged = [entry for entry in world.log if entry is not None]
    epochs = [(entry.producer_id, entry.producer_epoch) for entry in logged]
    assert epochs == sorted(epochs), "an epoch went back"
    decided = [entry for entry in logged if entry.state.is_preparing]
    commits = [entry for entry in decided if entry.state is State.PREPARE_COMMIT]
    assert len(commits) == sum(commit for _, commit in promised)
    for entry in decided:
        if entry.bumps_epochs and entry.partitions:
            assert outcomes[entry.producer_id, entry.producer_epoch] == {entry.state is State.PREPARE_COMMIT}


@given(
    st.builds(
        Transaction,
        transactional_id=st.text(max_size=20),
        producer_id=st.integers(0, 2**63 - 1),
        timeout_ms=st.integers(1, 2**31 - 1),
        updated_ms=st.integers(0, 2**62),
        producer_epoch=st.integers(-1, 2**15 - 1),
        state=st.sampled_from([state for state in NUMBERS if state is not State.EMPTY]),
        partitions=st.frozensets(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 99))),
        started_ms=st.integers(-1, 2**62),
        previous_producer_id=st.integers(-1, 2**62),
        next_producer_id=st.integers(-1, 2**62),
        client_version=st.integers(0, 2),
    )
)
def test_a_record_brings_back_what_was_stored(transaction: Transaction) -> None:
    key, value = records.transaction_key(transaction.transactional_id), records.transaction_value(transaction)
    assert records.decode(key, value) == (transaction.transactional_id, transaction)
    assert records.decode(key, None) == (transaction.transactional_id, None)
