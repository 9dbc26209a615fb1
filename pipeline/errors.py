"""The errors that stop a job, each one line for the user, and the exit status of a run that found a difference."""

from __future__ import annotations

from typing import Final

EXIT_MISMATCH: Final = 2
"""`audit` and `verify` ran, and counts or offsets differ. argparse uses the same status for a wrong option."""


class PipelineError(Exception):
    """A job cannot start or continue. The message is the one line for the user. No partial result is visible."""


class BadOption(PipelineError):
    """An option, or a combination of options, is wrong. The message names it, its value and what would be right."""


class DataLoss(PipelineError):
    """The next records to read are no longer in the log."""


class PoisonedBatch(PipelineError):
    """A batch cannot be decoded. The message names topic, partition, offset and, for segments, file and position."""


class ClusterError(PipelineError):
    """A Kafka cluster cannot be reached, or refuses. The message names the broker, topic or partition and the error."""


class UnknownTopic(ClusterError):
    """A topic does not exist, or no topic matches a pattern."""


class NotWritten(ClusterError):
    """A cluster did not accept a batch or the end of a transaction. The records of the transaction are not visible."""


class ProducerFenced(NotWritten):
    """Another producer has taken over the transactional id: another job, or a newer attempt of the same task."""


class NotATable(PipelineError):
    """A path or URL holds no Delta table, holds one that is not ours, or cannot be read."""


class ConcurrentCommit(PipelineError):
    """Another job changed the same table meanwhile. Nothing of this run is visible."""


class BadRecord(PipelineError):
    """A record that does not parse. The message names topic, partition, offset and the reason."""


class SchemaChanged(PipelineError):
    """Rows that do not fit the schema of the table. The message names the column and both types."""


class SourceReplaced(PipelineError):
    """The source of a job has changed since the last run. The message says how to start over."""
