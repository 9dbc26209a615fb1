"""What stops a job, as one line for the user; and the exit status of what ran and found a difference."""

from __future__ import annotations

from typing import Final

EXIT_MISMATCH: Final = 2
"""`audit` and `verify`: it ran, and the counts or offsets are not equal. argparse, too, ends so for a wrong option."""


class PipelineError(Exception):
    """A job cannot start or go on; the message is the one line that the user gets. Nothing half is visible."""


class BadOption(PipelineError):
    """An option, or the combination of several, is wrong; the message names it, its value and what would be right."""


class DataLoss(PipelineError):
    """Records that should be read next are no longer in the log."""


class PoisonedBatch(PipelineError):
    """A batch cannot be decoded; the message names topic, partition, offset and, for segments, file and position."""


class ClusterError(PipelineError):
    """A Kafka cluster cannot be reached, or refuses; the message names the broker, topic or partition and the error."""


class UnknownTopic(ClusterError):
    """A topic, or all that match a pattern, are not there."""


class NotWritten(ClusterError):
    """A cluster did not take a batch, or the end of a transaction: what was in the transaction is not visible."""


class ProducerFenced(NotWritten):
    """Another producer has taken over the transactional id: a rival job, or a newer attempt of the same task."""


class NotATable(PipelineError):
    """What a path or URL holds is no Delta table, not one of ours, or cannot be read."""


class ConcurrentCommit(PipelineError):
    """Another job changed the same table meanwhile; nothing of this run is visible."""


class BadRecord(PipelineError):
    """A record does not parse; the message names topic, partition, offset and the reason."""


class SchemaChanged(PipelineError):
    """Rows do not fit the table that is there; the message names the column and both types."""


class SourceReplaced(PipelineError):
    """What a job has taken from its source has changed since; the message says how to begin again."""
