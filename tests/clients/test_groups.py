"""Stock clients in groups, where the broker is killed, the makes are mixed or the group is a special one.

What every client does in a group by itself is a column of the matrix (`test_matrix.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from klamm.client.blocking import NodeClient
from tests.clients.conftest import MakeMember
from tests.clients.driver import Driver
from tests.clients.matrix import PARTITIONS, classic_owners, poll_until, text, values
from tests.support.broker_process import BrokerProcess

RESTARTED: Final = (
    "confluent-kafka",
    pytest.param("kafka-python", marks=pytest.mark.campaign),
    pytest.param("aiokafka", marks=pytest.mark.campaign),
    pytest.param("java-0.9.0.1", marks=[pytest.mark.java, pytest.mark.campaign]),
    pytest.param("java-4.4.0", marks=[pytest.mark.java, pytest.mark.campaign]),
)


@pytest.fixture(scope="module")
def broker(group_broker: BrokerProcess) -> BrokerProcess:
    """The tests restart it."""
    return group_broker


@pytest.fixture
def send(broker: BrokerProcess, topic: str, stock_client: Callable[[str], Driver]) -> Callable[[str], None]:
    """`send("a")` fills all partitions of the test's topic."""
    client = stock_client("confluent-kafka")
    return lambda beginning: client.produce(broker.address, topic, text(beginning, partitions=PARTITIONS)) and None


def read(beginning: str, *members: Any) -> None:
    """Poll until all that was sent so has come."""
    seen: set[bytes | None] = set()
    poll_until(lambda: seen >= values(beginning), members, seen)


def share(broker: BrokerProcess, group: str, *members: Any) -> None:
    """Poll until every member has its part."""
    with NodeClient(broker.host, broker.port) as node:
        part = PARTITIONS // len(members)
        poll_until(lambda: classic_owners(node, group) == [part] * len(members), members)


@pytest.mark.parametrize("client", RESTARTED)
def test_a_group_goes_on_from_its_commit_after_the_broker_was_killed(
    broker: BrokerProcess, send: Callable[[str], None], member: MakeMember, client: str
) -> None:
    send("a")
    first = member(client)
    read("a", first)
    first.commit()
    first.leave()
    broker.kill()
    broker.restart()
    send("b")
    second = member(client)
    seen: set[bytes | None] = set()
    poll_until(lambda: len(seen) >= len(values("b")), [second], seen)
    assert seen == values("b")


@pytest.mark.parametrize("client", RESTARTED)
def test_a_member_stays_in_its_group_over_a_restart_of_the_broker(
    broker: BrokerProcess, send: Callable[[str], None], member: MakeMember, client: str
) -> None:
    send("a")
    first = member(client)
    read("a", first)
    first.commit()
    assert broker.terminate() == 0
    broker.restart()
    send("b")
    read("b", first)
    first.commit()


@pytest.mark.java
def test_members_of_four_makes_are_one_group(
    broker: BrokerProcess, topic: str, send: Callable[[str], None], member: MakeMember
) -> None:
    members = [member(client) for client in ("aiokafka", "confluent-kafka", "kafka-python", "java-4.4.0")]
    share(broker, topic, *members)
    send("a")
    read("a", *members)


def test_cooperative_members_keep_what_they_need_not_give(
    broker: BrokerProcess, topic: str, send: Callable[[str], None], member: MakeMember
) -> None:
    config = {"partition.assignment.strategy": "cooperative-sticky"}
    first = member("confluent-kafka", config)
    share(broker, topic, first)
    second = member("confluent-kafka", config)
    share(broker, topic, first, second)
    poll_until(lambda: bool(first.revoked), [first, second])
    assert [len(given) for given in first.revoked if given] == [PARTITIONS // 2]
    send("a")
    read("a", first, second)


def test_a_static_member_comes_back_without_a_rebalance(broker: BrokerProcess, topic: str, member: MakeMember) -> None:
    first = member("confluent-kafka", {"group.instance.id": "one"})
    second = member("confluent-kafka", {"group.instance.id": "two"})
    share(broker, topic, first, second)
    poll_until(lambda: len(second.assigned) == PARTITIONS // 2, [first, second])
    owned = second.assigned
    first.revoked.clear()
    second.leave()  # a static member does not say so
    again = member("confluent-kafka", {"group.instance.id": "two"})
    poll_until(lambda: bool(again.assigned), [first, again])
    assert again.assigned == owned and first.revoked == []
