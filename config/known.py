"""Names of Apache Kafka's other broker keys: known, stored and reported as text, and without effect here.

Names only: a key that gets a function moves to the tables with its type and limits. Keys with a common prefix have it
written once.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = {
    "": (
        "add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms "
        "alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds "
        "errors.deadletterqueue.auto.create.topics.enable "
        "errors.deadletterqueue.topic.name.prefix follower.fetch.last.tiered.offset.enable "
        "internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes "
        "internal.metadata.max.batch.size.in.bytes kafka.metrics.polling.interval.secs "
        "log.initial.task.delay.ms metadata.log.max.record.bytes.between.snapshots "
        "metadata.log.max.snapshot.interval.ms metadata.max.idle.interval.ms "
        "num.replica.alter.log.dirs.threads "
        "replication.quota.window.num replication.quota.window.size.seconds server.max.startup.time.ms "
        "unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable"
    ),
    "controller.": ("performance.always.log.threshold.ms performance.sample.period.ms"),
    "controller.quorum.": (
        "append.linger.ms auto.join.enable election.backoff.max.ms election.timeout.ms fetch.max.bytes "
        "fetch.snapshot.max.bytes fetch.timeout.ms request.timeout.ms retry.backoff.ms"
    ),
    "group.coordinator.": ("append.linger.ms background.threads cached.buffer.max.bytes threads"),
    "group.share.": (
        "assignment.interval.ms assignor.offload.enable assignors delivery.count.limit dlq.manager.class.name "
        "heartbeat.interval.ms initialize.retry.interval.ms partition.max.record.locks persister.class.name "
        "record.lock.duration.ms session.timeout.ms"
    ),
    "group.share.max.": (
        "assignment.interval.ms delivery.count.limit heartbeat.interval.ms partition.max.record.locks "
        "record.lock.duration.ms session.timeout.ms share.sessions size"
    ),
    "group.share.min.": (
        "assignment.interval.ms delivery.count.limit heartbeat.interval.ms partition.max.record.locks "
        "record.lock.duration.ms session.timeout.ms"
    ),
    "group.streams.": (
        "acceptable.recovery.lag assignment.interval.ms assignor.offload.enable assignors "
        "heartbeat.interval.ms initial.rebalance.delay.ms num.standby.replicas num.warmup.replicas "
        "rack.aware.assignment.tags session.timeout.ms task.offset.interval.ms "
        "topology.description.plugin.class"
    ),
    "group.streams.max.": (
        "assignment.interval.ms heartbeat.interval.ms session.timeout.ms size standby.replicas warmup.replicas"
    ),
    "group.streams.min.": ("assignment.interval.ms heartbeat.interval.ms session.timeout.ms task.offset.interval.ms"),
    "remote.": ("fetch.max.wait.ms list.offsets.request.timeout.ms"),
    "remote.log.": (
        "index.file.cache.total.size.bytes index.file.cache.ttl.ms reader.max.pending.tasks reader.threads "
        "storage.manager.class.name storage.manager.class.path storage.manager.impl.prefix"
    ),
    "remote.log.manager.": (
        "copier.thread.pool.size copy.max.bytes.per.second copy.quota.window.num "
        "copy.quota.window.size.seconds expiration.thread.pool.size fetch.max.bytes.per.second "
        "fetch.quota.window.num fetch.quota.window.size.seconds follower.thread.pool.size task.interval.ms "
        "task.retry.backoff.max.ms task.retry.backoff.ms task.retry.jitter thread.pool.size"
    ),
    "remote.log.metadata.": (
        "custom.metadata.max.bytes manager.class.name manager.class.path manager.impl.prefix manager.listener.name"
    ),
    "sasl.": ("client.callback.handler.class mechanism.controller.protocol"),
    "sasl.kerberos.": (
        "kinit.cmd min.time.before.relogin principal.to.local.rules service.name ticket.renew.jitter "
        "ticket.renew.window.factor"
    ),
    "sasl.login.": ("callback.handler.class class retry.backoff.max.ms retry.backoff.ms"),
    "sasl.login.refresh.": ("buffer.seconds min.period.seconds window.factor window.jitter"),
    "sasl.oauthbearer.": (
        "client.credentials.client.id client.credentials.client.secret jwt.retriever.class scope token.endpoint.url"
    ),
    "sasl.oauthbearer.assertion.": (
        "algorithm claim.aud claim.exp.seconds claim.iss claim.jti.include claim.nbf.seconds claim.sub file "
        "private.key.file private.key.passphrase template.file"
    ),
    "share.": ("fetch.purgatory.purge.interval.requests"),
    "share.coordinator.": (
        "append.linger.ms cached.buffer.max.bytes cold.partition.snapshot.interval.ms load.buffer.size "
        "snapshot.update.records.per.snapshot threads write.timeout.ms"
    ),
    "share.coordinator.state.": (
        "topic.compression.codec topic.min.isr topic.num.partitions topic.prune.interval.ms "
        "topic.replication.factor topic.segment.bytes"
    ),
    "transaction.": ("two.phase.commit.enable"),
}

KNOWN: Final = frozenset(beginning + rest for beginning, all_of_them in _NAMES.items() for rest in all_of_them.split())

# Keys of Kafka before 4.0, most of them about ZooKeeper.
_OLD: Final = """
advertised.host.name advertised.port control.plane.listener.name
delegation.token.master.key host.name kafka.csv.metrics.reporter.enabled
leader.imbalance.per.broker.percentage log.cleaner.delete.retention.minutes log.message.timestamp.difference.max.ms
max.message.time.difference.ms metadata.migration.enable zookeeper.metadata.migration.enable
zookeeper.metadata.migration.min.batch.size password.encoder.cipher.algorithm password.encoder.iterations
password.encoder.key.length password.encoder.keyfactory.algorithm password.encoder.old.secret port
quota.consumer.default quota.producer.default zookeeper.clientCnxnSocket zookeeper.max.in.flight.requests
zookeeper.set.acl zookeeper.ssl.cipher.suites zookeeper.ssl.client.enable zookeeper.ssl.crl.enable
zookeeper.ssl.enabled.protocols zookeeper.ssl.endpoint.identification.algorithm zookeeper.ssl.keystore.location
zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol
zookeeper.ssl.truststore.location zookeeper.ssl.truststore.password zookeeper.ssl.truststore.type
zookeeper.sync.time.ms
"""
KNOWN_OLD: Final = frozenset(_OLD.split())

MOVE_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"

# Dynamic configs of a broker that no file of Apache Kafka holds: bytes per second.
DYNAMIC_ONLY: Final = frozenset(
    (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        MOVE_RATE,
    )
)

# Beginnings of keys that belong to plugins.
PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.", "metrics.context.", "confluent.")
