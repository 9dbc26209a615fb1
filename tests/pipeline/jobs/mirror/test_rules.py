"""Names and configs that go along."""

from __future__ import annotations

import re

import pytest

from klamm.pipeline.errors import BadOption
from klamm.pipeline.jobs.mirror.rules import Rules, changes, parse_renames


def rules(*renames: str, topics: str = ".*", exclude: str | None = None) -> Rules:
    return Rules("east", re.compile(topics), None if exclude is None else re.compile(exclude), parse_renames(renames))


def test_without_a_rule_names_stay() -> None:
    assert rules().targets(["b", "a"]) == {"a": "a", "b": "b"}


def test_the_first_rule_that_matches_the_whole_name_counts() -> None:
    found = rules(r"a-(.*)=b-\1", "c=d", "{source}.{topic}").targets(["a-x", "ba-x", "c"])
    assert found == {"a-x": "b-x", "ba-x": "east.ba-x", "c": "d"}


def test_only_what_is_meant() -> None:
    assert list(rules(topics="a.*", exclude="ab.*").targets(["a", "ab", "abc", "ac", "b"])) == ["a", "ac"]


@pytest.mark.parametrize(
    "name", ["__consumer_offsets", "mm2-offset-syncs.x.internal", "x.checkpoints.internal", "a-internal"]
)
def test_internal_topics_never(name: str) -> None:
    assert rules().targets([name, "t"]) == {"t": "t"}


@pytest.mark.parametrize(
    ("renames", "line"),
    [
        (["x"], "--rename x: it has the form pattern=replacement, or contains {topic}"),
        (["(=y"], r"--rename ( is not a regular expression"),
        ([r"a=\1"], r"--rename a=\1: invalid group reference"),
        (["a="], "makes nothing of a, which is no topic name"),
        (["{topic}/x"], "makes a/x of a"),
    ],
)
def test_a_problem_is_reported(renames: list[str], line: str) -> None:
    with pytest.raises(BadOption, match=re.escape(line)):
        rules(*renames).targets(["a"])


def test_two_topics_that_would_become_one() -> None:
    with pytest.raises(BadOption, match=r"^a-1 and a-2 of east would both become a: give them different names$"):
        rules("a-.=a").targets(["a-2", "a-1", "b"])


def test_configs_of_a_cluster_stay_there() -> None:
    there = {"retention.ms": "1", "min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}
    there |= {"message.timestamp.after.max.ms": "5", "klamm.acks.fsync": "true", "cleanup.policy": "compact"}
    assert rules().configs(there) == {"retention.ms": "1", "cleanup.policy": "compact"}
    more = Rules("east", re.compile(".*"), exclude_configs=re.compile("cleanup.*"))
    assert more.configs(there) == {"retention.ms": "1"}


def test_changes_set_and_give_back() -> None:
    wanted = {"a": "1", "b": "2"}
    there = {"a": "1", "b": "3", "c": "4", "min.insync.replicas": "2"}
    assert changes(wanted, there, rules()) == {"b": "2", "c": None}
