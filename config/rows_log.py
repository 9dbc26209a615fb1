"""Broker keys of the log: segments, flushing, timestamps, compression, retention, compaction.

Most are the defaults that a topic may override (see `topic_keys`).
"""

from __future__ import annotations

from klamm.config.definitions import DOUBLE_MAX, INT_MAX, LONG_MAX, ConfigKey, Type
from klamm.config.validators import OneOf, Range, Words

K = ConfigKey
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG, Type.DOUBLE, Type.LIST
POSITIVE, NOT_NEGATIVE = Range(1), Range(0)

CODECS = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
TIMESTAMP_TYPES = OneOf(("CreateTime", "LogAppendTime"))
POLICIES = Words(("compact", "delete"))
MINUTE_MS, HOUR_MS = 60_000, 3_600_000

SEGMENTS = (
    K("log.segment.bytes", INT, 1 << 30, "A log begins a new segment file at this size.", Range(1 << 20),
      "cluster-wide", "high"),
    K("log.roll.ms", LONG, None, "A log begins a new segment when the old one is this old. Precedes `log.roll.hours`.",
      dynamic="cluster-wide", importance="high", fallbacks=(("log.roll.hours", HOUR_MS),)),
    K("log.roll.hours", INT, 168, "The same in hours.", POSITIVE, importance="high"),
    K("log.roll.jitter.ms", LONG, None, "At most this much is taken off that age at random, so that logs do not roll "
      "all at once.", dynamic="cluster-wide", importance="high", fallbacks=(("log.roll.jitter.hours", HOUR_MS),)),
    K("log.roll.jitter.hours", INT, 0, "The same in hours.", NOT_NEGATIVE, importance="high"),
    K("log.index.interval.bytes", INT, 4096, "Bytes of log between two entries of the indexes.", NOT_NEGATIVE,
      "cluster-wide"),
    K("log.index.size.max.bytes", INT, 10485760, "The largest offset index; a full one begins a new segment.", Range(4),
      "cluster-wide"),
    K("log.preallocate", BOOLEAN, False, "Reserve the whole segment file when it is created.", dynamic="cluster-wide"),
    K("log.segment.delete.delay.ms", LONG, 60000, "How long a deleted segment file stays, with the suffix `.deleted`.",
      NOT_NEGATIVE, "cluster-wide", "high"),
    K("num.recovery.threads.per.data.dir", INT, 2, "How many logs of a directory are checked at once at a "
      "start after a crash, each in a process of its own when there is much to check.", POSITIVE, "cluster-wide",
      "high"),
    K("log.dir.failure.timeout.ms", LONG, 30000, "How long a broker may fail to report a broken directory.", POSITIVE,
      importance="low", status="no use"),
    K("cordoned.log.dirs", LIST, [], "Directories that get no new partitions; `*` is all.", Words(), status="later"),
)  # fmt: skip

FLUSH = (
    K("log.flush.interval.messages", LONG, LONG_MAX, "Records that may be appended to a log before it is forced to "
      "disk.", POSITIVE, "cluster-wide", "high"),
    K("log.flush.interval.ms", LONG, None, "How long a record may stay in memory only. Precedes "
      "`log.flush.scheduler.interval.ms`.", dynamic="cluster-wide", importance="high",
      fallbacks=(("log.flush.scheduler.interval.ms", 1),)),
    K("log.flush.scheduler.interval.ms", LONG, LONG_MAX, "How often logs are checked for it.", importance="high"),
    K("klamm.acks.fsync", BOOLEAN, False, "Acknowledge a record, and show it to consumers, only when it is on the "
      "disk: one sync serves every append of the moment. For acks=1 and acks=all, and for records of the coordinators. "
      "Precedes `log.flush.interval.messages`.", dynamic="cluster-wide", importance="high"),
    K("log.flush.offset.checkpoint.interval.ms", INT, 60000, "How often recovery points are checkpointed.",
      NOT_NEGATIVE, importance="high"),
    K("log.flush.start.offset.checkpoint.interval.ms", INT, 60000, "How often log start offsets are checkpointed.",
      NOT_NEGATIVE, importance="high"),
)  # fmt: skip

BATCHES = (
    K("message.max.bytes", INT, 1048588, "The largest batch of records, as it is stored.", NOT_NEGATIVE, "cluster-wide",
      "high"),
    K("max.decompressed.message.bytes", INT, 100 << 20, "How large the records of a batch may be after decompression.",
      Range(1, INT_MAX - 8), "cluster-wide"),
    K("compression.type", STRING, "producer", "How batches are stored: `producer` keeps their codec, a codec "
      "recompresses.", CODECS, "cluster-wide", "high"),
    K("compression.gzip.level", INT, -1, "The level used to recompress with gzip.", Range(1, 9, also=-1),
      "cluster-wide"),
    K("compression.lz4.level", INT, 9, "The level used to recompress with lz4.", Range(1, 17), "cluster-wide"),
    K("compression.zstd.level", INT, 3, "The level used to recompress with zstd.", Range(-131072, 22), "cluster-wide"),
    K("log.message.timestamp.type", STRING, "CreateTime", "The clock of record timestamps: the producer's, or the "
      "broker's (LogAppendTime).", TIMESTAMP_TYPES, "cluster-wide"),
    K("log.message.timestamp.before.max.ms", LONG, LONG_MAX, "How much earlier than the broker's clock a record's "
      "timestamp may be.", NOT_NEGATIVE, "cluster-wide"),
    K("log.message.timestamp.after.max.ms", LONG, HOUR_MS, "How far ahead of the broker's clock a record's time may "
      "be.", NOT_NEGATIVE, "cluster-wide"),
)  # fmt: skip

RETENTION = (
    K("log.cleanup.policy", LIST, ["delete"], "What happens to old records: `delete` by age and size, `compact` "
      "keeps the last of each key; both may be given, none keeps everything.", POLICIES, "cluster-wide"),
    K("log.retention.ms", LONG, None, "How long records are kept; -1 for ever. Precedes the keys in minutes and in "
      "hours.", dynamic="cluster-wide", importance="high",
      fallbacks=(("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS))),
    K("log.retention.minutes", INT, None, "The same in minutes. Precedes the key in hours.", importance="high"),
    K("log.retention.hours", INT, 168, "The same in hours.", importance="high"),
    K("log.retention.bytes", LONG, -1, "How large a partition may grow before its oldest segments go; -1 without "
      "limit.", dynamic="cluster-wide", importance="high"),
    K("log.retention.check.interval.ms", LONG, 300000, "How often logs are checked for expired records.", POSITIVE),
    K("log.local.retention.ms", LONG, -2, "Age limit of the local part of a tiered log; -2 as `log.retention.ms`.",
      Range(-2), "cluster-wide", status="later"),
    K("log.local.retention.bytes", LONG, -2, "Size limit of the local part of a tiered log; -2 as "
      "`log.retention.bytes`.", Range(-2), "cluster-wide", status="later"),
    K("log.remote.copy.lag.ms", LONG, 0, "Age at which a closed segment may be copied to remote storage.", Range(-1),
      "cluster-wide", status="later"),
    K("log.remote.copy.lag.bytes", LONG, -1, "Bytes after a closed segment at which it may be copied to remote "
      "storage.", Range(-1), "cluster-wide", status="later"),
    K("remote.log.storage.system.enable", BOOLEAN, False, "Keep old segments in remote storage.",
      refuse="remote storage does not exist here, and records kept there would be missing"),
)  # fmt: skip

COMPACTION = (
    K("log.cleaner.enable", BOOLEAN, True, "Compact the logs of topics that ask for it."),
    K("log.cleaner.threads", INT, 1, "How many logs are compacted at once.", NOT_NEGATIVE, "cluster-wide"),
    K("log.cleaner.backoff.ms", LONG, 15000, "Pause when no log needs compaction.", NOT_NEGATIVE, "cluster-wide"),
    K("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, "The part of a log that must be uncompacted before it is "
      "compacted again.", Range(0, 1), "cluster-wide"),
    K("log.cleaner.min.compaction.lag.ms", LONG, 0, "Records younger than this are not compacted.", NOT_NEGATIVE,
      "cluster-wide"),
    K("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, "Records older than this are compacted in any case.",
      POSITIVE, "cluster-wide"),
    K("log.cleaner.delete.retention.ms", LONG, 86400000, "How long a deletion marker stays in a compacted log.",
      NOT_NEGATIVE, "cluster-wide"),
    K("log.cleaner.dedupe.buffer.size", LONG, 134217728, "Memory for the map of keys.", dynamic="cluster-wide"),
    K("log.cleaner.io.buffer.size", INT, 524288, "Memory for reading and writing.", NOT_NEGATIVE, "cluster-wide",
      status="no use"),
    K("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, "How full the map of keys may get.", dynamic="cluster-wide"),
    K("log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, "How fast compaction may read and write.",
      dynamic="cluster-wide"),
)  # fmt: skip

ROWS = (*SEGMENTS, *FLUSH, *BATCHES, *RETENTION, *COMPACTION)
