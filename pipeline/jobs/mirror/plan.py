"""The plan of a round: `topics_plan` for topics and configs, `flows` for the offsets. Neither changes anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from klamm.pipeline.errors import BadOption, DataLoss, UnknownTopic
from klamm.pipeline.jobs.mirror.batches import Way
from klamm.pipeline.jobs.mirror.copying import Mirroring
from klamm.pipeline.jobs.mirror.progress import Flow, group_of, is_of
from klamm.pipeline.jobs.mirror.rules import Rules, changes
from klamm.pipeline.jobs.mirror.syncs import NOWHERE, checkpoints_topic, read_sync, syncs_topic
from klamm.pipeline.kafka.cluster import READ_UNCOMMITTED, Cluster, Topic
from klamm.pipeline.kafka.fetcher import fetch_columns
from klamm.pipeline.kafka.groups import Committed, committed
from klamm.pipeline.kafka.producer import TRANSACTION_TIMEOUT_S, Producer
from klamm.pipeline.kafka.topics import TOPIC_RESOURCE, topic_configs
from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
MAX_MESSAGE_BYTES: Final = "max.message.bytes"


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """The user's choices. `begin`: earliest, latest or a time in ms, for partitions never mirrored before.

    `partitioning` is one of `mirror.PARTITIONING`.
    """

    begin: str | int = EARLIEST
    partitioning: str = "auto"
    add_partitions: bool = False
    sync_configs: bool = True
    replication_factor: int = -1


@dataclass(slots=True)
class TopicsPlan:
    """The topics of a round, and the changes at the target by topic. `targets`: source topic -> target topic."""

    sources: dict[str, Topic]
    targets: dict[str, str]
    there: dict[str, Topic]
    create: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    grow: dict[str, int] = field(default_factory=dict)
    configure: dict[str, dict[str, str | None]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield the plan as lines for people."""
        for name, (partitions, configs) in self.create.items():
            text = "".join(f" {key}={value}" for key, value in sorted(configs.items()))
            yield f"create topic {name} partitions={partitions}{text}"
        for name, count in self.grow.items():
            yield f"add partitions to {name}: {count} in all"
        for name, configs_ in self.configure.items():
            for key, value in sorted(configs_.items()):
                yield f"config of {name}: {key} {'back to the default' if value is None else f'= {value}'}"

    def partitions(self, target: str) -> int:
        """Return the number of partitions of the topic after the plan is carried out."""
        if target in self.create:
            return self.create[target][0]
        return self.grow.get(target, len(self.there[target].partitions))


def topics_plan(
    source: Cluster, target: Cluster, rules: Rules, settings: MirrorSettings, *, owned: bool = True
) -> TopicsPlan:
    """Plan topics, partitions and configs. Raises UnknownTopic when no topic matches.

    `owned` False: another source sets configs and partitions.
    """
    all_ = source.topics()
    targets = rules.targets(name for name, topic in all_.items() if not topic.is_internal)
    if not targets:
        raise UnknownTopic(f"no topic on {source.bootstrap_servers} matches {rules.topics.pattern}")
    _check_loop(source, target, targets)
    there = target.topics(targets.values(), missing_ok=True)
    plan = TopicsPlan({name: all_[name] for name in targets}, targets, there)
    configs = topic_configs(source, targets)
    present = topic_configs(target, there)
    for name, new in targets.items():
        count = len(all_[name].partitions)
        wanted = rules.configs(configs[name]) if settings.sync_configs else {}
        if new not in there:
            plan.create[new] = count, wanted
        elif owned:
            if settings.add_partitions and count > len(there[new].partitions):
                plan.grow[new] = count
            if settings.sync_configs and (changed := changes(wanted, present[new], rules)):
                plan.configure[new] = changed
    return plan


def internal_topics(alias: str) -> tuple[str, str]:
    """Return the internal topics that a mirror needs at the target."""
    return syncs_topic(alias), checkpoints_topic(alias)


def flows(source: Cluster, target: Cluster, plan: TopicsPlan, job: Mirroring, settings: MirrorSettings) -> list[Flow]:
    """Return the partitions with something to copy, largest first. Raises DataLoss, BadOption, ClusterError."""
    partitions = [one for name in plan.targets for one in plan.sources[name].topic_partitions]
    starts, ends = source.earliest(partitions), source.latest(partitions)
    begins = _begins(source, partitions, starts, ends, settings)
    limits = _limits(target, plan.there)
    known = _settled(target, plan, job)
    fallback = _fallback(target, plan, job, [one for one in partitions if one not in known and starts[one] < ends[one]])
    found = []
    for one in partitions:
        way = _way(one, plan, limits, settings)
        topic = plan.sources[one.topic]
        begin = fallback.get(one, begins[one])
        at = begin
        if one in known:
            at = _checked(one, known[one], topic, starts[one], ends[one], job)
        wanted = OffsetRange(one.topic, one.partition, at, ends[one], topic.topic_id)
        pin = one not in known and settings.begin != EARLIEST
        if at < ends[one] or pin:
            found.append(Flow(wanted, plan.targets[one.topic], way, begin, pin))
    return sorted(found, key=lambda flow: (-flow.wanted.count, flow.source))


def _check_loop(source: Cluster, target: Cluster, targets: Mapping[str, str]) -> None:
    """Refuse to mirror a topic onto itself."""
    same = [name for name, new in targets.items() if name == new]
    if same and (identity := source.metadata([]).cluster_id) and identity == target.metadata([]).cluster_id:
        raise BadOption(f"source and target are the same cluster, and {same[0]} would be mirrored onto itself")


def _begins(
    source: Cluster,
    partitions: list[TopicPartition],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    settings: MirrorSettings,
) -> Mapping[TopicPartition, int]:
    if settings.begin == EARLIEST:
        return starts
    if settings.begin == LATEST:
        return ends
    assert isinstance(settings.begin, int)
    times = source.offsets_for_times(dict.fromkeys(partitions, settings.begin))
    return {one: ends[one] if (at := times[one]) is None else at for one in partitions}


def _settled(target: Cluster, plan: TopicsPlan, job: Mirroring) -> dict[TopicPartition, Committed]:
    """Return the committed offsets, once the brokers have dropped those of topics that this round creates again."""
    retries = target.retries()
    while True:
        found = _committed(target, plan, job)
        old = [one for one in found if plan.targets[one.topic] in plan.create]
        if not old:
            return found
        retries.again(f"{plan.targets[old[0].topic]} is new, and group {job.group} has offsets of one of that name")


def _committed(target: Cluster, plan: TopicsPlan, job: Mirroring) -> dict[TopicPartition, Committed]:
    """Return the committed offsets by source partition."""
    wanted: dict[str, dict[TopicPartition, TopicPartition]] = {}
    for name, new in plan.targets.items():
        if new in plan.there:
            count = plan.partitions(new)
            for one in plan.sources[name].topic_partitions:
                place = TopicPartition(new, one.partition % count)
                wanted.setdefault(group_of(job.group, one.partition, count), {})[place] = one
    return {
        ones[place]: found for group, ones in wanted.items() for place, found in committed(target, group, ones).items()
    }


def _checked(one: TopicPartition, found: Committed, topic: Topic, start: int, end: int, job: Mirroring) -> int:
    """Return the offset to continue from. The task checks it again, after it has fenced others."""
    reason = None
    at = found.offset
    if not is_of(found, one.topic, topic.topic_id, job.group):
        reason, at = "the topic was deleted and created again", start
    elif found.offset < start:
        reason, at = f"the log starts at {start} now", found.offset
    elif found.offset > end:
        reason, at = f"the log ends at {end}", start
    if reason is not None and job.fail_on_data_loss:
        raise DataLoss(f"{one}: offset {found.offset} is the next to mirror and is gone, {reason}")
    return at


def _fallback(
    target: Cluster, plan: TopicsPlan, job: Mirroring, unknown: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the offsets of partitions with an expired group: from their newest sync, if the target has its records."""
    topic = syncs_topic(job.alias)
    wanted = {one for one in unknown if plan.targets[one.topic] in plan.there}
    if not wanted or topic not in target.topics([topic], missing_ok=True):
        return {}
    places = {place for one in wanted for place in plan.there[plan.targets[one.topic]].topic_partitions}
    ends = target.latest(places, READ_UNCOMMITTED)
    wanted = {one for one in wanted if any(ends[place] for place in places if place.topic == plan.targets[one.topic])}
    if not wanted:
        return {}
    _settle(target, topic, plan, job)
    found = {}
    for one, upstream, downstream in read_syncs(target, topic):
        if one in wanted:
            end = ends.get(TopicPartition(plan.targets[one.topic], one.partition), 0)
            if downstream == NOWHERE or downstream <= end:
                found[one] = upstream
            else:
                found.pop(one, None)
    return found


def _settle(target: Cluster, topic: str, plan: TopicsPlan, job: Mirroring) -> None:
    """End the open transactions on the syncs: those of tasks that were killed, and of other mirrors."""
    partition = TopicPartition(topic, 0)
    wanted = target.latest([partition], READ_UNCOMMITTED)[partition]
    if target.latest([partition])[partition] >= wanted:
        return
    for name, new in plan.targets.items():
        for one in plan.sources[name].topic_partitions:
            with Producer(target, transactional_id=job.transactional_id(new, one.partition)):
                pass  # its start fences
    retries = target.retries(2 * TRANSACTION_TIMEOUT_S)
    while target.latest([partition])[partition] < wanted:
        retries.again(f"{topic}: transactions of others are open")


def read_syncs(target: Cluster, topic: str) -> Iterator[tuple[TopicPartition, int, int]]:
    """Yield all committed offset syncs, in order."""
    partition = TopicPartition(topic, 0)
    end = target.latest([partition])[partition]
    start = target.earliest([partition])[partition]
    for part in fetch_columns(target, OffsetRange(topic, 0, start, end)):
        data = part.data.data
        for key_start, key_end, value_start, value_end in zip(
            part.keys.starts.tolist(),
            part.keys.ends.tolist(),
            part.values.starts.tolist(),
            part.values.ends.tolist(),
            strict=True,
        ):
            try:
                yield read_sync(bytes(data[key_start:key_end]), bytes(data[value_start:value_end]))
            except ValueError:
                continue  # a tombstone, or a record of another program


def _way(one: TopicPartition, plan: TopicsPlan, limits: Mapping[str, int], settings: MirrorSettings) -> Way:
    new = plan.targets[one.topic]
    count, sources = plan.partitions(new), len(plan.sources[one.topic].partitions)
    if settings.partitioning == "keep" and count < sources:
        raise BadOption(f"{new} has {count} partitions, too few to keep the {sources} of {one.topic}")
    keep = settings.partitioning == "keep" or (settings.partitioning == "auto" and count == sources)
    return Way(one.partition, count, keep, limits.get(new, 1 << 20))


def _limits(target: Cluster, names: Mapping[str, Any]) -> dict[str, int]:
    """Return the largest batch that each topic accepts."""
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[MAX_MESSAGE_BYTES]
        )
        for name in names
    ]
    if not resources:
        return {}
    response = target.ask(DescribeConfigsRequest(resources=resources))
    return {
        result.resource_name: int(item.value)
        for result in response.results
        for item in result.configs
        if item.name == MAX_MESSAGE_BYTES
    }
