"""Broker keys of the node itself: identity, listeners, network, requests, topics, metrics, and Klamm's own.

One row per key: name, type, default, meaning, and its other facts if any.
"""

from __future__ import annotations

from klamm.config.definitions import INT_MAX, ConfigKey, Type
from klamm.config.validators import NotEmpty, OneOf, Range, Words

K = ConfigKey
BOOLEAN, STRING, INT, LONG, LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG, Type.LIST
POSITIVE, NOT_NEGATIVE = Range(1), Range(0)

IDENTITY = (
    K("node.id", INT, 1, "The number of this node, the broker id that clients see. `broker.id` of older files is the "
      "same key.", NOT_NEGATIVE, importance="high"),
    K("broker.id", INT, -1, "The older name of `node.id`; -1 means that only `node.id` counts. Both set must be equal.",
      importance="high"),
    K("broker.rack", STRING, None, "Where the broker stands (rack, zone); clients and replica placement see it."),
    K("process.roles", LIST, ["broker", "controller"], "The roles of a KRaft process. Klamm needs `broker` among "
      "them and is its own controller in any case.", Words(("broker", "controller"), empty_allowed=False),
      importance="high"),
    K("log.dir", LIST, ["./data"], "Where the partitions are kept, when `log.dirs` is not set. Kafka's default is "
      "/tmp/kafka-logs, which many machines empty at a restart.", Words(empty_allowed=False), importance="high"),
    K("log.dirs", LIST, None, "Directories for the partitions, separated by commas; in place of `log.dir`.",
      Words(empty_allowed=False), importance="high"),
)  # fmt: skip

LISTENERS = (
    K("listeners", LIST, ["PLAINTEXT://127.0.0.1:9092"], "The sockets to open, as NAME://host:port separated by "
      "commas. No host means all interfaces, port 0 a free one. Kafka's default opens all interfaces, Klamm's only "
      "the loopback.", Words(empty_allowed=False), importance="high"),
    K("advertised.listeners", LIST, None, "The addresses that clients get. By default each client gets the address "
      "that it dialled, which is right without NAT; no host means that address with another port.",
      Words(empty_allowed=False), importance="high"),
    K("listener.security.protocol.map", STRING,
      "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", "The security protocol of each "
      "listener name, as NAME:PROTOCOL separated by commas.",
      importance="low"),
    K("inter.broker.listener.name", STRING, None, "The listener that other brokers connect to."),
    K("security.inter.broker.protocol", STRING, "PLAINTEXT", "The protocol between brokers when no listener is named "
      "for it.", OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
      refuse="TLS and SASL between brokers do not exist yet"),
    K("controller.listener.names", LIST, [], "Listeners that belong to KRaft's quorum. Klamm leaves them closed.",
      Words(empty_allowed=False), importance="high", status="no use"),
    K("early.start.listeners", LIST, None, "Listeners that a Kafka broker opens before its authorizer is ready.",
      Words(), importance="high", status="no use"),
)  # fmt: skip

NETWORK = (
    K("socket.request.max.bytes", INT, 104857600, "The largest request; a connection that announces more is closed.",
      POSITIVE, importance="high"),
    K("socket.send.buffer.bytes", INT, 102400, "SO_SNDBUF of accepted sockets; -1 leaves it to the system.",
      importance="high"),
    K("socket.receive.buffer.bytes", INT, 102400, "SO_RCVBUF of accepted sockets; -1 leaves it to the system.",
      importance="high"),
    K("socket.listen.backlog.size", INT, 50, "How many connections may wait to be accepted.", POSITIVE),
    K("max.connections", INT, INT_MAX, "How many connections the broker serves at once; also per listener, with the "
      "prefix `listener.name.<name>.`.", NOT_NEGATIVE, dynamic="cluster-wide"),
    K("max.connections.per.ip", INT, INT_MAX, "How many connections one address may hold.", NOT_NEGATIVE,
      dynamic="cluster-wide"),
    K("max.connections.per.ip.overrides", STRING, "", "Other limits for some addresses or names, as "
      "`10.0.0.7:100,host:20`.", dynamic="cluster-wide"),
    K("max.connection.creation.rate", INT, INT_MAX, "How many connections may be made in a second; the rest wait. "
      "Also per listener.",
      NOT_NEGATIVE, dynamic="cluster-wide"),
    K("connections.max.idle.ms", LONG, 600000, "A connection without a request for this long is closed; negative "
      "never."),
    K("queued.max.request.bytes", LONG, -1, "Bytes of requests that may wait for their answers before reading stops; "
      "-1 is no limit."),
    K("queued.max.requests", INT, 500, "Requests that may wait for a Kafka I/O thread. See "
      "klamm.max.inflight.per.connection.", POSITIVE, importance="high", status="no use"),
    K("num.network.threads", INT, 3, "Threads that serve sockets in Kafka. Klamm has one event loop.", POSITIVE,
      dynamic="cluster-wide", importance="high", status="no use"),
    K("num.io.threads", INT, 8, "Threads that serve requests in Kafka. Klamm has one event loop.", POSITIVE,
      dynamic="cluster-wide", importance="high", status="no use"),
    K("background.threads", INT, 10, "Threads for Kafka's background work.", POSITIVE, dynamic="cluster-wide",
      importance="high", status="no use"),
    K("request.timeout.ms", INT, 30000, "How long the broker waits for a response of another node.",
      importance="high", status="later"),
    K("socket.connection.setup.timeout.ms", LONG, 10000, "How long connecting to another node may take.",
      status="later"),
    K("socket.connection.setup.timeout.max.ms", LONG, 30000, "How far that time grows after failures.", status="later"),
)  # fmt: skip

REQUESTS = (
    K("auto.create.topics.enable", BOOLEAN, True, "Create a topic when a client asks for its metadata or writes to it.",
      importance="high"),
    K("delete.topic.enable", BOOLEAN, True, "Allow topics to be deleted.", importance="high"),
    K("num.partitions", INT, 1, "Partitions of a topic that is created without a number.", POSITIVE),
    K("default.replication.factor", INT, 1, "Replicas of a topic that is created without a number."),
    K("create.topic.policy.class.name", Type.CLASS, None, "A Java class that judges new topics.", importance="low",
      refuse="Java policy classes cannot run here, and without it topics would pass that it forbids"),
    K("alter.config.policy.class.name", Type.CLASS, None, "A Java class that judges config changes.", importance="low",
      refuse="Java policy classes cannot run here, and without it changes would pass that it forbids"),
    K("fetch.max.bytes", INT, 57671680, "The most bytes in the answer to one fetch.", Range(1024)),
    K("max.incremental.fetch.session.cache.slots", INT, 1000, "How many incremental fetch sessions are remembered.",
      NOT_NEGATIVE),
    K("max.request.partition.size.limit", INT, 2000, "The most partitions in the answer to one "
      "DescribeTopicPartitions.", POSITIVE),
    K("fetch.purgatory.purge.interval.requests", INT, 1000, "Housekeeping of waiting fetches in Kafka.",
      status="no use"),
    K("producer.purgatory.purge.interval.requests", INT, 1000, "Housekeeping of waiting produces in Kafka.",
      status="no use"),
    K("delete.records.purgatory.purge.interval.requests", INT, 1, "Housekeeping of waiting record deletions.",
      status="no use"),
    K("controlled.shutdown.enable", BOOLEAN, True, "Hand leaders to other brokers before stopping.", status="later"),
    K("telemetry.max.bytes", INT, 1048576, "The largest metrics message of a client.", POSITIVE, importance="low",
      status="later"),
    K("quota.window.num", INT, 11, "Samples that the quota of a client is measured over, in bytes, request time and "
      "connections.", POSITIVE, importance="low"),
    K("quota.window.size.seconds", INT, 1, "Length of one such sample.", POSITIVE, importance="low"),
    K("controller.quota.window.num", INT, 11, "Samples that the quota of partitions made and deleted is measured over.",
      POSITIVE, importance="low"),
    K("controller.quota.window.size.seconds", INT, 1, "Length of one such sample.", POSITIVE, importance="low"),
    K("client.quota.callback.class", Type.CLASS, None, "A Java class that decides client quotas.", importance="low",
      refuse="a Java class cannot run here"),
)  # fmt: skip

METRICS = (
    K("metric.reporters", LIST, ["org.apache.kafka.common.metrics.JmxReporter"], "Java classes that publish metrics. "
      "See klamm.metrics.listener.", Words(), dynamic="cluster-wide", importance="low", status="no use"),
    K("kafka.metrics.reporters", LIST, [], "Java classes that publish Kafka's older metrics.", Words(),
      importance="low", status="no use"),
    K("metrics.num.samples", INT, 2, "Samples that a rate is computed from.", POSITIVE, importance="low",
      status="no use"),
    K("metrics.sample.window.ms", LONG, 30000, "Length of one such sample.", POSITIVE, importance="low",
      status="no use"),
    K("metrics.recording.level", STRING, "INFO", "Which metrics Kafka records.", importance="low", status="no use"),
)  # fmt: skip

KLAMM = (
    K("klamm.metrics.listener", STRING, "127.0.0.1:9404", "Where Prometheus finds /metrics, and probes /healthz and "
      "/readyz: host:port, or `none`. When the default is taken another port is used; a configured one that is taken "
      "is an error.", NotEmpty(), importance="high"),
    K("klamm.audit.log", STRING, None, "A file for the audit log, a JSON object in each line: denied requests, "
      "changes of permissions and configs. It is made with the mode 0600. The logger `klamm.audit` has the same as "
      "text.", NotEmpty()),
    K("klamm.max.inflight.per.connection", INT, 100, "How many Produce requests of one connection may wait for their "
      "acks before the broker stops reading from it.", POSITIVE),
    K("klamm.request.max.elements", INT, 100_000, "How many elements a request may have: topics, partitions and other "
      "items of its lists, tagged fields, and every 128 bytes of a string that is longer than that. A connection that "
      "sends more is closed. While it is handled, a request takes up to 2 KB of memory for each of them.", Range(1000),
      "cluster-wide"),
    K("klamm.connections.ipv6.prefix", INT, 128, "Connections of IPv6 addresses with so many bits in common are "
      "counted together: 64 for a whole network, as one machine may have all of its addresses.", Range(1, 128)),
    K("klamm.frame.timeout.ms", INT, 30000, "A request that has begun must be complete within this time, or the "
      "connection is closed.", POSITIVE),
    K("klamm.authentication.timeout.ms", INT, 10000, "A connection that must log in and has not done so within this "
      "time is closed.", POSITIVE),
    K("klamm.max.unauthenticated.connections", INT, 4096, "How many connections may be open that have to log in and "
      "have not yet; more are refused.", POSITIVE),
    K("klamm.max.unauthenticated.connections.per.ip", INT, 256, "How many of them one address may hold.", POSITIVE),
    K("klamm.max.delayed.failures", INT, 1000, "How many failed logins may wait for their answer "
      "(connection.failed.authentication.delay.ms); beyond that connections are closed at once, without one.",
      NOT_NEGATIVE),
    K("klamm.max.failed.logins.per.ip", INT, 20, "How many failed logins of one address are answered in a second; "
      "further ones are closed at once.", NOT_NEGATIVE),
    K("klamm.sasl.plain.without.tls", BOOLEAN, False, "Allow PLAIN on a SASL_PLAINTEXT listener that is not on the "
      "loopback. Its passwords can be read by everybody on the way."),
    K("klamm.jaas.file", STRING, None, "A JAAS file for listeners without a sasl.jaas.config: its section "
      "`<listener>.KafkaServer`, else `KafkaServer`. Not set, the file that `java.security.auth.login.config` names in "
      "the environment's KAFKA_OPTS.", NotEmpty()),
    K("klamm.max.open.log.files", INT, -1, "How many descriptors the logs keep open at once, for segments and mapped "
      "indexes; the least recently used are closed first, and opened again when needed. -1 is half of what "
      "the process may have (RLIMIT_NOFILE). It is never more than half of the memory maps that the kernel allows a "
      "process (vm.max_map_count).", Range(16, also=-1)),
    K("klamm.log.dir.reserve.bytes", LONG, 16 << 20, "Space that each log directory keeps for a full disk, in the "
      "file `klamm.reserve`. It is given up for work that deletes (retention, DeleteRecords, DeleteTopics, a clean "
      "stop), and for changes of configs. From then on nothing is appended to the directory until twice as much is "
      "free, and the reserve is written again. 0: none.", NOT_NEGATIVE),
    K("klamm.scrub.bytes.per.second", LONG, 10_000_000, "How fast the logs of each log directory are read in the "
      "background to verify the data on disk; 0 turns that off.", NOT_NEGATIVE, "cluster-wide"),
    K("klamm.scrub.interval.ms", LONG, 7 * 24 * 3600 * 1000, "Within this time every byte is verified, as far as that "
      "speed allows.", POSITIVE, "cluster-wide"),
    K("klamm.shutdown.timeout.ms", INT, 8000, "How long requests that were read may take to be answered after SIGTERM.",
      NOT_NEGATIVE),
    K("klamm.cluster.id", STRING, None, "The cluster id that a new data directory gets; random when not set. An "
      "existing directory keeps its own.", NotEmpty()),
)  # fmt: skip

ROWS = (*IDENTITY, *LISTENERS, *NETWORK, *REQUESTS, *METRICS, *KLAMM)
