"""Broker keys above one log: replication, producers, transactions, groups, KRaft and ZooKeeper, security."""

from __future__ import annotations

from klamm.config.definitions import INT_MAX, ConfigKey, Type
from klamm.config.validators import OneOfIgnoringCase, Principals, Range, Words

K = ConfigKey
BOOLEAN, STRING, INT, SHORT, LONG, LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.SHORT, Type.LONG, Type.LIST
CLASS, PASSWORD = Type.CLASS, Type.PASSWORD
POSITIVE, NOT_NEGATIVE = Range(1), Range(0)

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

REPLICATION = (
    K("min.insync.replicas", INT, 1, "Replicas that must have a record before acks=all is answered.", POSITIVE,
      "cluster-wide", "high"),
    K("unclean.leader.election.enable", BOOLEAN, False, "Let a replica that lags lead when no other is left, and "
      "lose records.", dynamic="cluster-wide", importance="high", status="later"),
    K("auto.leader.rebalance.enable", BOOLEAN, True, "Give partitions back to their preferred leaders.",
      importance="high", status="later"),
    K("leader.imbalance.check.interval.seconds", LONG, 300, "How often the balance of leaders is checked.", POSITIVE,
      importance="high", status="later"),
    K("num.replica.fetchers", INT, 1, "Connections that replicate from one broker.", POSITIVE, "cluster-wide", "high",
      status="later"),
    K("replica.lag.time.max.ms", LONG, 30000, "A follower that is not caught up for this long leaves the in-sync set.",
      importance="high", status="later"),
    K("replica.fetch.min.bytes", INT, 1, "Bytes that a replica's fetch waits for.", importance="high", status="later"),
    K("replica.fetch.wait.max.ms", INT, 500, "How long a replica's fetch waits.", importance="high", status="later"),
    K("replica.fetch.max.bytes", INT, 1048576, "Bytes of one partition in a replica's fetch.", NOT_NEGATIVE,
      status="later"),
    K("replica.fetch.response.max.bytes", INT, 10485760, "Bytes of a replica's fetch.", NOT_NEGATIVE, status="later"),
    K("replica.fetch.backoff.ms", INT, 1000, "Pause after a replica's fetch failed.", NOT_NEGATIVE, status="later"),
    K("replica.socket.timeout.ms", INT, 30000, "How long a replica waits for a response.", importance="high",
      status="later"),
    K("replica.socket.receive.buffer.bytes", INT, 65536, "SO_RCVBUF of a replica's socket.", importance="high",
      status="later"),
    K("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, "How often high watermarks are checkpointed.",
      importance="high", status="later"),
    K("replica.selector.class", STRING, None, "Chooses the replica a consumer reads from.", status="later"),
)  # fmt: skip

PRODUCERS = (
    K("producer.id.expiration.ms", INT, 86400000, "How long the sequence of a silent idempotent producer is "
      "remembered.", POSITIVE, "cluster-wide", "low"),
    K("producer.id.expiration.check.interval.ms", INT, 600000, "How often silent producers are removed.", POSITIVE,
      importance="low"),
    K("transaction.max.timeout.ms", INT, 900000, "The longest timeout a transactional producer may ask for.", POSITIVE,
      importance="high"),
    K("transactional.id.expiration.ms", INT, 604800000, "How long an idle transactional id is remembered.", POSITIVE,
      importance="high"),
    K("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3600000, "How often idle transactional ids "
      "are removed.", POSITIVE, importance="low"),
    K("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, "How often Kafka looks for "
      "transactions that take too long. Klamm aborts each when it times out.", POSITIVE, importance="low",
      status="no use"),
    K("transaction.state.log.load.buffer.size", INT, 5242880, "Bytes read at once when transactions are loaded.",
      POSITIVE, importance="high"),
    K("transaction.state.log.num.partitions", INT, 50, "Partitions of __transaction_state.", POSITIVE,
      importance="high"),
    K("transaction.state.log.replication.factor", SHORT, 3, "Replicas of __transaction_state, at most one a live "
      "broker.", POSITIVE, importance="high"),
    K("transaction.state.log.min.isr", INT, 2, "In-sync replicas that __transaction_state needs, at most as many as "
      "it has.", POSITIVE, importance="high"),
    K("transaction.state.log.segment.bytes", INT, 104857600, "Segment size of __transaction_state.", POSITIVE,
      importance="high"),
    K("transaction.partition.verification.enable", BOOLEAN, True, "Check that a partition belongs to the transaction "
      "that writes.", dynamic="cluster-wide", importance="low"),
)  # fmt: skip

GROUPS = (
    K("offsets.topic.num.partitions", INT, 50, "Partitions of __consumer_offsets.", POSITIVE, importance="high"),
    K("offsets.topic.replication.factor", SHORT, 3, "Replicas of __consumer_offsets, at most one a live broker.",
      POSITIVE, importance="high"),
    K("offsets.topic.segment.bytes", INT, 104857600, "Segment size of __consumer_offsets.", POSITIVE,
      importance="high"),
    K("offsets.topic.compression.codec", INT, 0, "Codec number of __consumer_offsets.", importance="high"),
    K("offsets.retention.minutes", INT, 10080, "How long offsets of an empty group are kept.", POSITIVE,
      importance="high"),
    K("offsets.retention.check.interval.ms", LONG, 600000, "How often expired offsets are removed.", POSITIVE,
      importance="high"),
    K("offsets.commit.timeout.ms", INT, 5000, "How long a commit waits for its replicas.", POSITIVE, importance="high"),
    K("offsets.load.buffer.size", INT, 5242880, "Bytes read at once when offsets are loaded.", POSITIVE,
      importance="high"),
    K("offset.metadata.max.bytes", INT, 4096, "The longest text a client may commit beside an offset.",
      importance="high"),
    K("group.initial.rebalance.delay.ms", INT, 3000, "How long a new classic group waits for more members."),
    K("group.min.session.timeout.ms", INT, 6000, "The shortest session timeout of a classic member."),
    K("group.max.session.timeout.ms", INT, 1800000, "The longest session timeout of a classic member."),
    K("group.max.size", INT, INT_MAX, "The most members of a classic group.", POSITIVE),
    K("group.coordinator.rebalance.protocols", LIST, ["classic", "consumer", "streams"], "The group protocols that "
      "are offered.", Words(("consumer", "classic", "share", "streams"), empty_allowed=False)),
    K("group.consumer.session.timeout.ms", INT, 45000, "Session timeout of the consumer protocol.", POSITIVE),
    K("group.consumer.min.session.timeout.ms", INT, 45000, "The shortest one that a group may set.", POSITIVE),
    K("group.consumer.max.session.timeout.ms", INT, 60000, "The longest one that a group may set.", POSITIVE),
    K("group.consumer.heartbeat.interval.ms", INT, 5000, "Heartbeat interval of the consumer protocol.", POSITIVE),
    K("group.consumer.min.heartbeat.interval.ms", INT, 5000, "The shortest one that a group may set.", POSITIVE),
    K("group.consumer.max.heartbeat.interval.ms", INT, 15000, "The longest one that a group may set.", POSITIVE),
    K("group.consumer.assignment.interval.ms", INT, 1000, "The least time between two assignments of a group.",
      NOT_NEGATIVE, "cluster-wide"),
    K("group.consumer.min.assignment.interval.ms", INT, 0, "The shortest one that a group may set.", NOT_NEGATIVE),
    K("group.consumer.max.assignment.interval.ms", INT, 15000, "The longest one that a group may set.", NOT_NEGATIVE),
    K("group.consumer.assignor.offload.enable", BOOLEAN, True, "Run the assignors in another thread. Klamm does so "
      "for large groups, always.", dynamic="cluster-wide", status="no use"),
    K("group.consumer.assignors", LIST, ["uniform", "range"], "The assignors that clients may ask for; the first is "
      "the default.", Words(empty_allowed=False)),
    K("group.consumer.regex.refresh.interval.ms", INT, 600000, "How often expressions are matched again. Klamm does "
      "it when topics change.", Range(10000), status="no use"),
    K("group.consumer.max.size", INT, INT_MAX, "The most members of a consumer group.", POSITIVE),
    K("group.consumer.migration.policy", STRING, "bidirectional", "Which way a group may change its protocol while "
      "in use.", OneOfIgnoringCase(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"))),
)  # fmt: skip

QUORUM = (
    K("controller.quorum.voters", LIST, [], "The fixed voters of a KRaft quorum.",
      importance="high", status="no use"),
    K("controller.quorum.bootstrap.servers", LIST, [], "Where a KRaft quorum is found.",
      importance="high", status="no use"),
    K("metadata.log.dir", STRING, None, "Where KRaft keeps its log: read once, when a log directory of Kafka is "
      "taken over. Klamm keeps its metadata in the first log directory.", importance="high"),
    K("metadata.log.segment.bytes", INT, 1 << 30, "Segment size of KRaft's log.", Range(8 << 20), importance="high",
      status="no use"),
    K("metadata.log.segment.ms", LONG, 604800000, "Segment age of KRaft's log.", importance="high", status="no use"),
    K("metadata.max.retention.bytes", LONG, 104857600, "Size limit of KRaft's log.", importance="high",
      status="no use"),
    K("metadata.max.retention.ms", LONG, 604800000, "Age limit of KRaft's log.", importance="high", status="no use"),
    K("broker.heartbeat.interval.ms", INT, 2000, "How often a broker reports to KRaft's controller.", status="no use"),
    K("broker.session.timeout.ms", INT, 9000, "When KRaft's controller takes a broker for dead.", status="no use"),
    K("initial.broker.registration.timeout.ms", INT, 60000, "How long a broker tries to join a KRaft cluster.",
      status="no use"),
    K("controller.socket.timeout.ms", INT, 30000, "How long a controller waits for a broker.", status="later"),
)  # fmt: skip

# Keys that Kafka 4.0 removed and that files for 3.x still set.
OLD = (
    K("zookeeper.connect", STRING, None, "The ZooKeeper of a Kafka before 4.0. Klamm keeps its metadata itself.",
      importance="high", status="no use"),
    K("zookeeper.connection.timeout.ms", INT, None, "How long connecting to ZooKeeper may take.", importance="high",
      status="no use"),
    K("zookeeper.session.timeout.ms", INT, 18000, "When ZooKeeper takes a broker for dead.", importance="high",
      status="no use"),
    K("broker.id.generation.enable", BOOLEAN, True, "Let ZooKeeper number the brokers.", status="no use"),
    K("reserved.broker.max.id", INT, 1000, "The highest id that operators may choose.", NOT_NEGATIVE, status="no use"),
    K("inter.broker.protocol.version", STRING, None, "The protocol version among brokers before KRaft.",
      status="no use"),
    K("log.message.format.version", STRING, None, "The record format on disk. Klamm writes version 2 only.",
      status="no use"),
    K("log.message.downconversion.enable", BOOLEAN, True, "Convert records for consumers from before 0.11.",
      dynamic="cluster-wide", importance="low", status="no use"),
    K("password.encoder.secret", PASSWORD, None, "Encrypts passwords that are set at run time, before Kafka 4. Klamm "
      "encrypts them under klamm.secret.key.file.", status="no use"),
)  # fmt: skip

SECURITY = (
    K("authorizer.class.name", STRING, "", "The authorizer. Empty: none, and every request is allowed. "
      f"`{STANDARD_AUTHORIZER}`: the ACLs of the cluster decide.", importance="low",
      accepts=(STANDARD_AUTHORIZER,), refuse=f"Java classes cannot run here, only {STANDARD_AUTHORIZER} is built in; "
      "ACLs that AclAuthorizer kept in ZooKeeper must be made again"),
    K("super.users", STRING, None, "Principals with every permission under an authorizer, as Type:name separated by "
      "semicolons: `User:admin;User:broker`.", Principals()),
    K("allow.everyone.if.no.acl.found", BOOLEAN, False, "Under an authorizer, allow every operation on a "
      "resource that no ACL names."),
    K("principal.builder.class", CLASS, "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
      "Names the user of a connection.", refuse="Java classes cannot run here, and users would have other names"),
    K("security.providers", STRING, None, "Java classes that provide cryptography.", importance="low", status="no use"),
    K("connection.failed.authentication.delay.ms", INT, 100, "How long a failed login waits for its answer.",
      NOT_NEGATIVE, importance="low"),
    K("connections.max.reauth.ms", LONG, 0, "How long a login lasts before the client must log in again; 0 is for "
      "ever. Also per listener and mechanism, with the prefix `listener.name.<name>.<mechanism>.`."),
    K("delegation.token.secret.key", PASSWORD, None, "Signs delegation tokens. Not set, there are none."),
    K("delegation.token.max.lifetime.ms", LONG, 604800000, "How long a token lives at most.", POSITIVE),
    K("delegation.token.expiry.time.ms", LONG, 86400000, "How long a token is valid without a renewal.", POSITIVE),
    K("delegation.token.expiry.check.interval.ms", LONG, 3600000, "How often expired tokens are removed.", POSITIVE,
      importance="low"),
    K("sasl.enabled.mechanisms", LIST, ["GSSAPI"], "The ways to log in with SASL, also per listener, with the prefix "
      "`listener.name.<name>.`. There are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and "
      "OAUTHBEARER.", Words()),
    K("sasl.server.max.receive.size", INT, 524288, "The largest frame of a login."),
    K("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", "How brokers log in to each other.", status="later"),
    K("sasl.jaas.config", PASSWORD, None, "One JAAS entry for a listener and mechanism, set with the prefix "
      "`listener.name.<name>.<mechanism>.`. The users of PLAIN are in it, as options `user_<name>=\"<password>\"` of "
      "`org.apache.kafka.common.security.plain.PlainLoginModule`."),
)  # fmt: skip

ROWS = (*REPLICATION, *PRODUCERS, *GROUPS, *QUORUM, *OLD, *SECURITY)
