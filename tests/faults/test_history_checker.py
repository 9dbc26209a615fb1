"""The checker itself: each anomaly in the smallest history that has it, and none where there is none."""

from __future__ import annotations

from math import inf

import pytest

from tests.faults.history.checker import VoidHistory, check
from tests.faults.history.events import Commit, Committed, History, Outcome, Poll, Send, Transaction

P = ("t", 0)
Q = ("t", 1)


def sent(value: bytes, offset: int | None, start: float, *, place=P, process="p", transaction=None, ok=True) -> Send:
    outcome = Outcome.OK if ok else Outcome.UNKNOWN
    return Send(process, place, value, start, start + 0.5 if ok else inf, outcome, offset, transaction)


def good() -> History:
    """Plain writes a b, a transaction c d in two partitions, an aborted one e; two readers; a group."""
    history = History()
    history.sends = [
        sent(b"a", 0, 1),
        sent(b"b", 1, 2),
        sent(b"c", 2, 3, transaction="T1", process="q"),
        sent(b"d", 0, 4, transaction="T1", process="q", place=Q),
        sent(b"e", 4, 7, transaction="T2", process="q"),
    ]
    history.transactions = {
        "T1": Transaction("T1", "q", commits=True, start=5, end=6, outcome=Outcome.OK),
        "T2": Transaction("T2", "q", commits=False, start=8, end=9, outcome=Outcome.OK),
    }
    history.polls = [
        Poll("r", 0, P, 0, [(0, b"a"), (1, b"b")], 2.6, 3),
        Poll("r", 0, P, 2, [(2, b"c")], 5.5, 6.5),
        Poll("r", 0, Q, 0, [(0, b"d")], 6.5, 7),
    ]
    history.final = {P: [(0, b"a"), (1, b"b"), (2, b"c")], Q: [(0, b"d")]}
    history.uncommitted = {P: [*history.final[P], (4, b"e")], Q: [(0, b"d")]}
    history.commits = [
        Commit("r", "g", P, 1, 3, 3.5, Outcome.OK),
        Commit("q", "g", P, 2, 4.5, 4.7, Outcome.OK, transaction="T1"),
        Commit("q", "g", P, 9, 7.5, 7.6, Outcome.OK, transaction="T2"),
    ]
    history.committed = [
        Committed("r", "g", P, -1, 1, 2),
        Committed("r", "g", P, 1, 3.2, 3.3),
        Committed("r", "g", P, 1, 5.1, 5.2),
        Committed("r", "g", P, 2, 5.3, 5.4),
        Committed("r", "g", P, 2, 9, 10),
    ]
    return history


def kinds(history: History) -> set[str]:
    return {anomaly.kind for anomaly in check(history, minimum=1)}


def test_a_good_history_has_no_anomalies() -> None:
    assert check(good(), minimum=1) == []


def test_a_history_in_which_little_happened_is_void() -> None:
    with pytest.raises(VoidHistory):
        check(good())


def test_what_was_acknowledged_and_is_not_there_is_lost_or_unseen() -> None:
    history = good()
    history.final[P].remove((1, b"b"))
    history.uncommitted[P].remove((1, b"b"))
    assert kinds(history) == {"lost-write"}
    history = good()
    history.sends.append(sent(b"z", 7, 10))
    assert kinds(history) == {"unseen"}
    history.sends[-1] = sent(b"z", None, 10, ok=False)
    assert kinds(history) == set()


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    history = good()
    history.sends.append(sent(b"z", None, 10, ok=False))
    history.final[P] += [(5, b"z"), (6, b"z")]
    assert kinds(history) == {"duplicate"}


def test_an_offset_has_one_value() -> None:
    history = good()
    history.sends.append(sent(b"z", None, 10, ok=False))
    history.polls.append(Poll("s", 0, P, 1, [(1, b"z")], 11, 12))
    assert kinds(history) == {"inconsistent-offsets"}
    history = good()
    history.sends[1].offset = 0
    assert "inconsistent-offsets" in kinds(history)


def test_what_was_aborted_is_not_read() -> None:
    history = good()
    history.final[P].append((4, b"e"))
    assert kinds(history) == {"aborted-read"}
    history = good()
    history.polls.append(Poll("s", 0, P, 4, [(4, b"e")], 11, 12))
    assert kinds(history) == {"aborted-read"}
    history.polls[-1].committed_only = False
    assert kinds(history) == set()


def test_nothing_is_read_before_its_transaction_commits() -> None:
    history = good()
    history.polls.append(Poll("s", 0, P, 2, [(2, b"c")], 3.6, 4.9))
    assert kinds(history) == {"precommitted-read"}


def test_a_transaction_is_there_as_a_whole() -> None:
    history = good()
    history.transactions["T1"].outcome = Outcome.UNKNOWN
    history.commits.clear()
    history.committed.clear()
    assert kinds(history) == set()
    history.final[Q].clear()
    history.polls.pop()
    assert kinds(history) == {"torn-transaction"}


def test_a_reader_leaves_nothing_out_and_does_not_go_back() -> None:
    history = good()
    history.polls.append(Poll("s", 0, P, 0, [(0, b"a"), (2, b"c")], 11, 12))
    assert kinds(history) == {"poll-skip"}
    history = good()
    history.polls.append(Poll("r", 0, P, 3, [(1, b"b")], 11, 12))
    assert kinds(history) == {"nonmonotonic-poll"}
    history.polls[-1].session = 1
    history.polls[-1].position = 1
    assert kinds(history) == set()


def test_a_producer_writes_in_its_order() -> None:
    history = good()
    history.sends[0].offset, history.sends[1].offset = 1, 0
    history.final[P][:2] = [(0, b"b"), (1, b"a")]
    history.uncommitted[P][:2] = [(0, b"b"), (1, b"a")]
    history.polls[0].records = [(0, b"b"), (1, b"a")]
    assert kinds(history) == {"nonmonotonic-send"}


@pytest.mark.parametrize(
    ("offset", "at", "kind"),
    [
        (-1, 4, "committed-went-back"),
        (1, 6.5, "committed-went-back"),
        (2, 4.9, "committed-too-early"),
        (9, 12, "committed-too-early"),
        (77, 12, "committed-went-back"),
    ],
)
def test_positions_of_groups(offset: int, at: float, kind: str) -> None:
    history = good()
    history.committed.append(Committed("s", "g", P, offset, at, at + 0.01))
    assert kinds(history) == {kind}


def test_of_a_commit_without_answer_nothing_is_certain() -> None:
    history = good()
    history.commits.append(Commit("r", "g", P, 5, 11))
    history.committed += [Committed("s", "g", P, offset, 12, 13) for offset in (2, 5)]
    assert kinds(history) == set()
