"""The job `mirror`: a round plans, creates topics and sets configs, copies in tasks, and writes checkpoints.

A run killed between two steps is simply repeated: existing topics are not created again, equal configs are not set
again, and each copy continues where its last committed transaction ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from klamm.pipeline.jobs.mirror.checkpoints import Checkpoints
from klamm.pipeline.jobs.mirror.copying import Chunk, ChunkCopied, Mirroring, copy_chunk
from klamm.pipeline.jobs.mirror.plan import MirrorSettings, TopicsPlan, flows, internal_topics, read_syncs, topics_plan
from klamm.pipeline.jobs.mirror.progress import Flow
from klamm.pipeline.jobs.mirror.rules import Rules
from klamm.pipeline.jobs.mirror.syncs import COMPACTED, Run, Translation, syncs_topic
from klamm.pipeline.jobs.repeating import repeated
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.topics import NewTopic, add_partitions, create_topics, set_configs
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.report import Report
from klamm.pipeline.spark.tasks import Tasks

CHUNKS_PER_SLOT: Final = 16
"""Tasks per slot: many, so that the slots finish together, but not thousands for thousands of partitions."""

TOPICS_AT_ONCE: Final = 200
"""The most topics that one request creates."""


@dataclass(frozen=True, slots=True)
class Source:
    """One cluster to mirror. `checkpoints` None: groups are left alone."""

    job: Mirroring
    rules: Rules
    checkpoints: Checkpoints | None


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a round for one source."""

    source: Source
    topics: TopicsPlan
    flows: tuple[Flow, ...]


class Mirror:
    """The rounds of a mirror: plan, copy, write checkpoints."""

    def __init__(
        self, sources: Sequence[Source], target_servers: str, settings: MirrorSettings, tasks: Tasks, report: Report
    ) -> None:
        self.sources = sources
        self.settings = settings
        self._target = Cluster(target_servers, timeout_s=sources[0].job.timeout_s)
        self._clusters = {
            one.job.alias: Cluster(one.job.source_servers, timeout_s=one.job.timeout_s) for one in sources
        }
        self._tasks = tasks
        self._report = report

    def plan(self) -> list[Planned]:
        """Return what a round would do now; changes nothing."""
        return [Planned(source, topics, self._flows(source, topics)) for source, topics in self._topics()]

    def once(self) -> int:
        """Run one round: copy everything up to now. Return the number of records copied."""
        planned = []
        for source, topics in self._topics():
            self._carry_out(source, topics)
            planned.append(Planned(source, topics, self._flows(source, topics)))
        copied = self._copy(planned)
        for one in planned:
            self._after(one, [chunk for chunk in copied if chunk.alias == one.source.job.alias])
        self._report.succeeded("mirror")
        return sum(chunk.records for chunk in copied)

    def every(self, seconds: float, stop: threading.Event, *, monotonic: Callable[[], float] = time.monotonic) -> int:
        """Run a round every `seconds` until `stop` is set; a started round is finished."""
        return repeated(self.once, seconds, stop, monotonic=monotonic)

    def close(self) -> None:
        for cluster in (self._target, *self._clusters.values()):
            cluster.close()

    # -- a round

    def _topics(self) -> Iterator[tuple[Source, TopicsPlan]]:
        """Yield the plan of topics of each source. If two have the same target topic, the first sets its configs."""
        taken: set[str] = set()
        for source in self.sources:
            cluster = self._clusters[source.job.alias]
            found = topics_plan(cluster, self._target, source.rules, self.settings)
            for name in taken.intersection(found.targets.values()):
                found.configure.pop(name, None)
                found.grow.pop(name, None)
            taken.update(found.targets.values())
            yield source, found

    def _flows(self, source: Source, topics: TopicsPlan) -> tuple[Flow, ...]:
        cluster = self._clusters[source.job.alias]
        return tuple(flows(cluster, self._target, topics, source.job, self.settings))

    def _carry_out(self, source: Source, topics: TopicsPlan) -> None:
        factor = self.settings.replication_factor
        internal = internal_topics(source.job.alias)
        there = self._target.topics(internal, missing_ok=True)
        wanted = [NewTopic(name, 1, COMPACTED) for name in internal if name not in there]
        wanted += [NewTopic(name, partitions, configs) for name, (partitions, configs) in topics.create.items()]
        for first in range(0, len(wanted), TOPICS_AT_ONCE):
            made = create_topics(self._target, wanted[first : first + TOPICS_AT_ONCE], replication_factor=factor)
            for name, topic in made.items():
                if name in topics.create:
                    topics.there[name] = topic
                    self._report.event("created", topic=name, partitions=len(topic.partitions))
        for name, count in topics.grow.items():
            add_partitions(self._target, name, count)
            topics.there[name] = replace(topics.there[name], partitions=tuple(range(count)))
            self._report.event("grown", topic=name, partitions=count)
        for name, changed in topics.configure.items():
            set_configs(self._target, name, changed)
            self._report.event("configured", topic=name, configs=",".join(sorted(changed)))

    def _copy(self, planned: Sequence[Planned]) -> list[ChunkCopied]:
        chunks = self.chunks(planned)
        offsets = sum(flow.wanted.count for one in planned for flow in one.flows)
        if not chunks:
            return []
        self._report.event(
            "planned", partitions=sum(len(one.flows) for one in planned), tasks=len(chunks), offsets=offsets
        )
        begun_s = time.monotonic()
        with self._report.progress("mirror", total=offsets) as progress:
            copied = self._tasks.run(copy_chunk, chunks, progress)
        self._tell(copied, time.monotonic() - begun_s)
        return copied

    def chunks(self, planned: Sequence[Planned]) -> list[Chunk]:
        """Deal the partitions of each source out by size, so that all tasks have about the same work."""
        most = CHUNKS_PER_SLOT * self._tasks.parallelism
        return [
            Chunk(one.source.job, one.flows[first :: min(most, len(one.flows))])
            for one in planned
            for first in range(min(most, len(one.flows)))
        ]

    def _tell(self, copied: list[ChunkCopied], seconds: float) -> None:
        parts = [one for chunk in copied for one in chunk.copied]
        size_bytes = sum(one.size_bytes for one in parts)
        self._report.event(
            "mirrored",
            records=sum(one.records for one in parts),
            mb=size_bytes / 1e6,
            untouched_batches=sum(one.untouched_batches for one in parts),
            new_batches=sum(one.new_batches for one in parts),
            transactions=sum(one.transactions for one in parts),
            seconds=seconds,
            mb_per_s=size_bytes / 1e6 / max(seconds, 1e-9),
        )
        for one in parts:
            if one.lost:
                self._report.event("gap", partition=str(one.source), lost_offsets=one.lost)

    # -- groups

    def _after(self, planned: Planned, copied: list[ChunkCopied]) -> None:
        checkpoints = planned.source.checkpoints
        if checkpoints is None:
            return
        if not checkpoints.translations:
            self._load(planned.source.job.alias, checkpoints)
        for chunk in copied:
            for one in chunk.copied:
                checkpoints.translations.setdefault(one.source, Translation()).add(one.runs)
        targets = {
            one: TopicPartition(new, one.partition)
            for name, new in planned.topics.targets.items()
            for one in planned.topics.sources[name].topic_partitions
        }
        written = checkpoints.write(self._clusters[planned.source.job.alias], self._target, targets)
        self._report.event("checkpoints", groups=written.groups, written=written.checkpoints)
        for group in written.busy:
            self._report.event("group left alone", group=group, reason="it has members at the target")

    def _load(self, alias: str, checkpoints: Checkpoints) -> None:
        """Load the syncs of earlier runs. The exact runs of this one are added later, and replace them."""
        for one, upstream, downstream in read_syncs(self._target, syncs_topic(alias)):
            checkpoints.translations.setdefault(one, Translation()).add([Run(upstream, downstream)])
