"""Which quota holds for a client, which clients share a measure, and that there are never too many measures."""

from __future__ import annotations

import itertools
import math

import pytest

from klamm.broker.quotas import client_quotas
from klamm.broker.quotas.client_quotas import NOTHING, UNLIMITED, ClientQuotas, Meter
from klamm.broker.quotas.entities import CLIENT, FETCH, IP, MUTATION, PRODUCE, REQUEST, USER, Entity, entity, find
from klamm.broker.quotas.measure import Windows


class Time:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def quotas_with(quotas: dict[Entity, dict[str, float]], time: Time | None = None) -> ClientQuotas:
    quotas_ = ClientQuotas(Windows(), now=time or Time())
    quotas_.change(quotas)
    return quotas_


USER_A, CLIENT_C = (USER, "a"), (CLIENT, "c")
ANY_USER, ANY_CLIENT = (USER, None), (CLIENT, None)
LEVELS = [
    entity([USER_A, CLIENT_C]),
    entity([USER_A, ANY_CLIENT]),
    entity([USER_A]),
    entity([ANY_USER, CLIENT_C]),
    entity([ANY_USER, ANY_CLIENT]),
    entity([ANY_USER]),
    entity([CLIENT_C]),
    entity([ANY_CLIENT]),
]


def test_the_first_level_that_is_set_wins() -> None:
    for chosen in itertools.product([False, True], repeat=len(LEVELS)):
        quotas = {level: {PRODUCE: float(place)} for place, level in enumerate(LEVELS) if chosen[place]}
        found = find(quotas, PRODUCE, "a", "c")
        assert (found[1] if found else None) == (float(chosen.index(True)) if any(chosen) else None)


def test_each_kind_is_found_by_itself() -> None:
    quotas = {entity([USER_A]): {FETCH: 1.0}, entity([ANY_CLIENT]): {PRODUCE: 2.0, FETCH: 3.0}}
    assert find(quotas, FETCH, "a", "c") == (("a", None), 1.0)
    assert find(quotas, PRODUCE, "a", "c") == ((None, "c"), 2.0)
    assert find(quotas, REQUEST, "a", "c") is None


@pytest.mark.parametrize(
    ("level", "same_user", "same_client"),
    [
        (entity([USER_A, ANY_CLIENT]), False, False),
        (entity([ANY_USER, ANY_CLIENT]), False, False),
        (entity([USER_A]), True, False),
        (entity([ANY_USER]), True, False),
        (entity([ANY_CLIENT]), False, True),
    ],
)
def test_which_clients_share_a_measure(level: Entity, same_user: bool, same_client: bool) -> None:
    quotas = quotas_with({level: {PRODUCE: 5.0}, entity([(USER, "b"), ANY_CLIENT]): {PRODUCE: 5.0}})
    one = quotas.meter("User:a", "x").produce
    assert (quotas.meter("User:a", "y").produce is one) == same_user
    if level == entity([ANY_CLIENT]):
        assert (quotas.meter("User:z", "x").produce is one) == same_client
    else:
        assert quotas.meter("User:b", "x").produce is not one


def test_a_client_without_an_id_has_the_default_one() -> None:
    quotas = quotas_with({entity([ANY_CLIENT]): {PRODUCE: 5.0}})
    assert quotas.meter("User:a", None).produce is quotas.meter("User:b", "").produce


def test_a_client_without_a_quota_is_not_measured() -> None:
    quotas = quotas_with({entity([USER_A]): {PRODUCE: 5.0}, ((IP, None),): {"connection_creation_rate": 1.0}})
    assert quotas.meter("User:b", "c") is NOTHING
    meter = quotas.meter("User:a", "c")
    assert meter.fetch is UNLIMITED and meter.request is UNLIMITED and meter.mutation is None
    assert (UNLIMITED.record(1e300, 5.0), UNLIMITED.left) == (0, math.inf)


def test_a_change_holds_at_once_and_keeps_what_was_measured() -> None:
    quotas = quotas_with({entity([USER_A]): {PRODUCE: 100.0, MUTATION: 1.0}})
    meter = quotas.meter("User:a", "c")
    assert meter.produce.record(1000, quotas.now()) == 0
    quotas.change({entity([USER_A]): {PRODUCE: 50.0}})
    changed = quotas.meter("User:a", "c")
    assert changed.mutation is None
    assert changed.produce.record(0, quotas.now()) == 10_000
    quotas.change({})
    assert quotas.meter("User:a", "c") is NOTHING


def test_a_million_client_ids_leave_ten_thousand_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MOST_SENSORS", 100)
    time = Time()
    quotas = quotas_with({entity([ANY_CLIENT]): {PRODUCE: 5.0, REQUEST: 1.0, MUTATION: 1.0}}, time)
    busy = quotas.meter("User:a", "busy")
    for number in range(10_000):
        time.now_s += 0.001
        quotas.meter("User:a", f"id-{number}")
        quotas.meter("User:a", "busy").produce.record(1, time.now_s)
        busy.request.record(0, time.now_s)
        assert busy.mutation is not None
        busy.mutation.take(0, time.now_s)
    assert len(quotas.produce) == len(quotas.request) == len(quotas.mutations) == 100
    assert quotas.meter("User:a", "busy").produce is busy.produce, "a busy client keeps its measure"


def test_a_meter_is_made_again_when_a_measure_of_it_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MOST_SENSORS", 2)
    quotas = quotas_with({entity([ANY_CLIENT]): {PRODUCE: 5.0}})
    meters: list[Meter] = [quotas.meter("User:a", name) for name in "xyz"]
    assert len(quotas.produce) == 2
    assert [quotas.meter("User:a", name).produce is meters["xyz".index(name)].produce for name in "yz"] == [True, True]
    assert meters[0].produce.left == 0
    assert quotas.meter("User:a", "x").produce is not meters[0].produce


def test_measures_expire_after_an_hour() -> None:
    time = Time()
    quotas = quotas_with({entity([ANY_CLIENT]): {PRODUCE: 5.0}}, time)
    first, second = quotas.meter("User:a", "one"), quotas.meter("User:a", "two")
    time.now_s += 3000
    second.produce.record(1, time.now_s)
    time.now_s += 700
    quotas.meter("User:a", "three")
    assert len(quotas.produce) == 2
    assert quotas.meter("User:a", "two").produce is second.produce
    assert quotas.meter("User:a", "one").produce is not first.produce
