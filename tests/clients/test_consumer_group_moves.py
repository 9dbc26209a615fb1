"""Groups of the consumer protocol outlive their broker: a `kill -9`, and a move between Klamm and Apache Kafka 4.4.

The description of a group is the same before and after, in every state it can be in, and its members continue.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.describe_groups import DescribeGroupsRequest
from tests.clients.kafka_tools import KafkaTools
from tests.clients.test_consumer_group_reference import CONFIG, TOPICS, Asker, classic_member, rejoin
from tests.clients.test_group_reference import await_coordinator
from tests.clients.test_reference import flat
from tests.support.apache_kafka import CLUSTER_ID, apache_kafka
from tests.support.broker_process import BrokerProcess
from tests.support.java_process import JavaProcess

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

SETTINGS: Final = {**CONFIG, "offsets.topic.num.partitions": "5"}
GROUPS: Final = ("revoking", "stable", "away", "regex", "mixed", "empty", "deleted", "classic again")
RESOLVED_S: Final = 0.7


def fill(ask: Asker) -> None:
    """Groups in all their states."""
    beat = ask.beat
    beat("revoking", "a", 0, ["u"])
    beat("revoking", "b", 0, ["u", "none"], rack_id="r")
    beat("revoking", "a", 2, owned={"u": range(6)})
    beat("stable", "a", 0, ["t", "u"], server_assignor="range")
    beat("away", "a", 0, ["u"], instance_id="i")
    beat("away", "a", -2, instance_id="i")
    beat("regex", "a", 0, subscribed_topic_regex="t|u")
    time.sleep(RESOLVED_S)
    beat("regex", "a", ask.describe("regex").groups[0].members[0].member_epoch, owned={})
    classic_member(ask, "mixed", "i1", "u", set(range(6)))
    beat("mixed", "c", 0, ["u"])
    member = next(row for row in ask.describe("mixed").groups[0].members if row.instance_id == "i1").member_id
    rejoin(ask, "mixed", member, "i1", "u", range(3))
    for group in ("empty", "deleted"):
        beat(group, "a", 0, ["u"])
        beat(group, "a", -1)
    ask.delete("deleted")
    classic_member(ask, "classic again", "i1", "u", set(range(6)))
    beat("classic again", "c", 0, ["u"])
    beat("classic again", "c", -1)
    ask.commit("stable", "a", 2, 9)


def look(ask: Asker) -> dict[str, object]:
    found = dict(flat(ask.describe(*GROUPS)))
    described = ask.client.request(DescribeGroupsRequest(groups=["classic again"]), 5).groups[0]
    found["classic member"] = described.members[0].group_instance_id
    found["commit"] = ask.fetch("stable", None, -1).groups[0].topics[0].partitions[0].committed_offset
    return found


def go_on(ask: Asker) -> None:
    """The members of before are known, and end up with what they were to have."""
    beat = ask.beat
    for _ in range(4):
        a = beat("revoking", "a", epoch_of(ask, "a"), owned={"u": range(3)})
        b = beat("revoking", "b", epoch_of(ask, "b"))
        assert (a.error_code, b.error_code) == (0, 0)
    described = ask.describe("revoking").groups[0]
    assert described.group_state == "Stable"
    assert [len(member.assignment.topic_partitions[0].partitions) for member in described.members] == [3, 3]
    back = beat("away", "a2", 0, ["u"], instance_id="i")
    assert back.error_code == 0 and back.assignment == {"u": [0, 1, 2, 3, 4, 5]}


def epoch_of(ask: Asker, member: str) -> int:
    rows = ask.describe("revoking").groups[0].members
    return next(int(row.member_epoch) for row in rows if row.member_id == member)


def known(client: NodeClient) -> Asker:
    """An asker for a broker that has the topics already."""
    await_coordinator(client)
    return Asker(client, make=False)


def filled(port: int) -> dict[str, object]:
    with NodeClient("127.0.0.1", port, timeout_s=20) as client:
        ask = Asker(client)
        await_coordinator(client)
        fill(ask)
        found = look(ask)
    assert found["commit"] == 1 and len(TOPICS) == 3
    return found


def moved(port: int, before: dict[str, object]) -> None:
    with NodeClient("127.0.0.1", port, timeout_s=20) as client:
        ask = known(client)
        assert look(ask) == before
        go_on(ask)


def test_groups_outlive_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as klamm:
        before = filled(klamm.port)
        klamm.kill()
    with BrokerProcess(tmp_path, SETTINGS) as klamm:
        moved(klamm.port, before)
        assert "Traceback" not in klamm.log()


@pytest.mark.campaign
def test_kafka_goes_on_with_klamms_groups(tmp_path: Path, commands: JavaProcess) -> None:
    ours: dict[str, Any] = {**SETTINGS, "log.dirs": tmp_path / "data", "klamm.cluster.id": CLUSTER_ID}
    with BrokerProcess(tmp_path / "klamm", ours) as klamm:
        before = filled(klamm.port)
        klamm.kill()
    files = sorted((tmp_path / "data").glob("__consumer_offsets-*/*.log"))
    text = KafkaTools(commands, klamm.address).dump_log(files, "--print-data-log", "--offsets-decoder")
    for kind in (1, 2, 3, 5, 6, 7, 8, 16):
        assert f'"type":"{kind}"' in text
    command = [sys.executable, "-m", "klamm", "export-kafka", str(tmp_path / "export")]
    for key, value in ours.items():
        command += ["--override", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    with apache_kafka(tmp_path / "apache", SETTINGS, log_dir=tmp_path / "export") as kafka:
        moved(kafka.port, before)


@pytest.mark.campaign
def test_klamm_goes_on_with_kafkas_groups(tmp_path: Path) -> None:
    with apache_kafka(tmp_path / "apache", SETTINGS, log_dir=tmp_path / "data") as kafka:
        before = filled(kafka.port)
        kafka.stop()
    with BrokerProcess(tmp_path / "klamm", {**SETTINGS, "log.dirs": tmp_path / "data"}) as klamm:
        moved(klamm.port, before)
        assert "Traceback" not in klamm.log()
