from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from klamm.broker.controller.placement import ReplicaPlacer, alternate_racks
from klamm.broker.metadata.image import BrokerImage


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 60), st.integers(0, 2**32))
def test_replicas_are_distinct_and_leaders_are_shared_evenly(brokers: int, factor: int, count: int, seed: int) -> None:
    factor = min(factor, brokers)
    placer = ReplicaPlacer(random.Random(seed).randrange)
    placed = placer.place({node: BrokerImage(node) for node in range(brokers)}, count, factor)
    assert len(placed) == count
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(node, 0) for node in range(brokers)) <= 1


def test_racks_alternate() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    order = alternate_racks({node: BrokerImage(node, rack=rack) for node, rack in racks.items()})
    assert order == [1, 3, 5, 2, 4]
    placed = ReplicaPlacer(lambda below: 0).place({n: BrokerImage(n, rack=r) for n, r in racks.items()}, 1, 3)
    assert {racks[replica] for replica in placed[0]} == {"a", "b", "c"}
