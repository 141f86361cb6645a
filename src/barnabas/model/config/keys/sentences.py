"""What each key does that has an effect in Barnabas, for an operator who reads it alone.

A key of Kafka that has no sentence here is accepted and ignored, and the broker warns when it is set. To make a key
work, read it in the broker and describe it here; `model/config/page` makes docs/configuration.md of it. Write as
Kafka's manual does: name what the key limits or switches, and the other keys that it depends on.
"""

from __future__ import annotations

from typing import Final

BROKER: Final[dict[str, str]] = {
    "advertised.listeners": (
        "The addresses that the broker gives to clients, as NAME://HOST:PORT. If unset, the values of listeners."
    ),
    "alter.config.policy.class.name": (
        "A Java class that judges changes of settings, which Barnabas cannot run: a broker with one does not start."
    ),
    "authorizer.class.name": (
        "The class name of Kafka's StandardAuthorizer or AclAuthorizer: the broker then checks every request against "
        "ACLs. If empty, every client may do everything."
    ),
    "auto.create.topics.enable": (
        "Whether the broker creates a topic when a client asks for the metadata of one that does not exist."
    ),
    "auto.leader.rebalance.enable": (
        "Whether the controller moves leadership back to the preferred leaders when leaders are out of balance."
    ),
    "broker.id": "The id of this broker. The same as node.id, under its name in Kafka's ZooKeeper mode.",
    "broker.rack": "The rack of this broker. The controller spreads the replicas of a partition over racks.",
    "client.quota.callback.class": (
        "A Java class that gives clients their quotas, which Barnabas cannot run: a broker with one does not start."
    ),
    "compression.gzip.level": (
        "The compression level for topics whose compression.type is gzip; -1 is the default of gzip."
    ),
    "compression.lz4.level": "The compression level for topics whose compression.type is lz4.",
    "compression.type": "The compression codec of stored batches; `producer` keeps the codec that the producer used.",
    "compression.zstd.level": "The compression level for topics whose compression.type is zstd.",
    "config.providers": (
        "The names of config providers. A value ${NAME:PATH:KEY} is read from provider NAME when the broker starts; "
        "config.providers.NAME.class is FileConfigProvider, DirectoryConfigProvider or EnvVarConfigProvider."
    ),
    "connection.failed.authentication.delay.ms": (
        "How long the broker waits before it answers a failed login and closes the connection."
    ),
    "connections.max.reauth.ms": (
        "The time after which a SASL client must log in again, or the broker closes its connection; 0 for never."
    ),
    "connections.max.idle.ms": "The broker closes a connection that was idle for this long.",
    "controller.quota.window.num": (
        "The number of samples in which controller mutations are counted. Their share may be used at once."
    ),
    "controller.quota.window.size.seconds": (
        "The length of one sample in which controller mutations are counted (controller.quota.window.num)."
    ),
    "create.topic.policy.class.name": (
        "A Java class that judges new topics, which Barnabas cannot run: a broker with one does not start."
    ),
    "controlled.shutdown.enable": (
        "Whether a broker that stops moves the leadership of its partitions to other brokers first."
    ),
    "controlled.shutdown.max.retries": (
        "How many times a stopping broker asks the controller to move its leadership (controlled.shutdown.enable)."
    ),
    "controlled.shutdown.retry.backoff.ms": (
        "How long a stopping broker waits before it asks the controller again to move its leadership "
        "(controlled.shutdown.enable)."
    ),
    "controller.listener.names": (
        "The listeners of Kafka's controller quorum. Barnabas has no such quorum and does not open them."
    ),
    "controller.socket.timeout.ms": (
        "How long a broker waits for a connection to another broker, or for the answer of the controller."
    ),
    "default.replication.factor": "The replication factor of topics that are created without one.",
    "delegation.token.expiry.check.interval.ms": "How often the controller removes delegation tokens that expired.",
    "delegation.token.expiry.time.ms": "How long a delegation token is valid, unless it is renewed.",
    "delegation.token.max.lifetime.ms": (
        "The maximum lifetime of a delegation token; after it the token cannot be renewed any more."
    ),
    "delegation.token.secret.key": (
        "The secret that signs delegation tokens, the same on all brokers. If unset, delegation tokens are disabled."
    ),
    "delete.topic.enable": "Whether clients may delete topics.",
    "errors.deadletterqueue.auto.create.topics.enable": (
        "Whether brokers create the topic for dead letters that a share group names, if it does not exist."
    ),
    "errors.deadletterqueue.topic.name.prefix": (
        "The prefix that the names of topics for dead letters must have. If blank, any name is allowed that does not "
        "begin with two underscores."
    ),
    "fetch.max.bytes": "The maximum number of bytes in the response to one Fetch request.",
    "follower.replication.throttled.rate": (
        "The maximum bytes per second that this broker fetches for its replicas in "
        "follower.replication.throttled.replicas."
    ),
    "group.consumer.assignment.interval.ms": (
        "The minimum time between two assignments of a consumer group; changes in between wait for the next assignment."
    ),
    "group.consumer.assignors": "The server-side assignors that consumers may choose; the first is the default.",
    "group.consumer.heartbeat.interval.ms": (
        "The heartbeat interval that the broker gives to members of consumer groups."
    ),
    "group.consumer.max.assignment.interval.ms": "The maximum value of consumer.assignment.interval.ms for a group.",
    "group.consumer.max.heartbeat.interval.ms": "The maximum value of consumer.heartbeat.interval.ms for a group.",
    "group.consumer.max.session.timeout.ms": "The maximum value of consumer.session.timeout.ms for a group.",
    "group.consumer.max.size": "The maximum number of members in one consumer group.",
    "group.consumer.migration.policy": (
        "Whether a group with members may be upgraded from the classic to the consumer protocol, or downgraded."
    ),
    "group.consumer.min.assignment.interval.ms": "The minimum value of consumer.assignment.interval.ms for a group.",
    "group.consumer.min.heartbeat.interval.ms": "The minimum value of consumer.heartbeat.interval.ms for a group.",
    "group.consumer.min.session.timeout.ms": "The minimum value of consumer.session.timeout.ms for a group.",
    "group.consumer.regex.refresh.interval.ms": (
        "How often the broker matches the regular expressions of consumer groups' subscriptions with all topics again."
    ),
    "group.consumer.session.timeout.ms": (
        "The coordinator removes a member of a consumer group that sent no heartbeat for this long."
    ),
    "group.initial.rebalance.delay.ms": (
        "How long the first rebalance of an empty classic group waits for more members to join."
    ),
    "group.max.session.timeout.ms": "The maximum session timeout that a member of a classic group may ask for.",
    "group.max.size": "The maximum number of members in one classic group.",
    "group.min.session.timeout.ms": "The minimum session timeout that a member of a classic group may ask for.",
    "group.share.assignment.interval.ms": (
        "The minimum time between two assignments of a share group; later changes are put together in the next one."
    ),
    "group.share.assignors": "The assignor of share groups: simple, the only one there is.",
    "group.share.delivery.count.limit": (
        "How often a record is delivered to a share group at most; then it is archived."
    ),
    "group.share.heartbeat.interval.ms": "The heartbeat interval that the broker gives to members of share groups.",
    "group.share.initialize.retry.interval.ms": (
        "How long the coordinator of a share group waits for the state of a partition before it asks for it again."
    ),
    "group.share.max.assignment.interval.ms": "The maximum value of share.assignment.interval.ms for a group.",
    "group.share.max.delivery.count.limit": "The highest value that share.delivery.count.limit of a group may have.",
    "group.share.max.heartbeat.interval.ms": "The maximum value of share.heartbeat.interval.ms for a group.",
    "group.share.max.partition.max.record.locks": (
        "The highest value that share.partition.max.record.locks of a group may have."
    ),
    "group.share.max.record.lock.duration.ms": (
        "The highest value that share.record.lock.duration.ms of a group may have."
    ),
    "group.share.max.session.timeout.ms": "The maximum value of share.session.timeout.ms for a group.",
    "group.share.max.share.sessions": "How many members of share groups may fetch from this broker at the same time.",
    "group.share.max.size": "The maximum number of members in one share group.",
    "group.share.min.assignment.interval.ms": "The minimum value of share.assignment.interval.ms for a group.",
    "group.share.min.delivery.count.limit": "The lowest value that share.delivery.count.limit of a group may have.",
    "group.share.min.heartbeat.interval.ms": "The minimum value of share.heartbeat.interval.ms for a group.",
    "group.share.min.partition.max.record.locks": (
        "The lowest value that share.partition.max.record.locks of a group may have."
    ),
    "group.share.min.record.lock.duration.ms": (
        "The lowest value that share.record.lock.duration.ms of a group may have."
    ),
    "group.share.min.session.timeout.ms": "The minimum value of share.session.timeout.ms for a group.",
    "group.share.partition.max.record.locks": "How many records of a partition may be in flight in a share group.",
    "group.share.record.lock.duration.ms": (
        "How long a record stays locked for the member of a share group that acquired it. Then it is delivered again."
    ),
    "group.share.session.timeout.ms": (
        "The coordinator removes a member of a share group that sent no heartbeat for this long."
    ),
    "inter.broker.listener.name": "The listener that brokers use to talk to each other.",
    "leader.imbalance.check.interval.seconds": (
        "How often the controller checks whether leaders are balanced (auto.leader.rebalance.enable)."
    ),
    "leader.imbalance.per.broker.percentage": (
        "The percentage of a broker's preferred partitions that other brokers may lead before the controller moves "
        "them back (auto.leader.rebalance.enable)."
    ),
    "leader.replication.throttled.rate": (
        "The maximum bytes per second that this broker sends to replicas in leader.replication.throttled.replicas."
    ),
    "listener.security.protocol.map": (
        "The security protocol of each listener, as NAME:PROTOCOL: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."
    ),
    "listeners": "The addresses that the broker listens on, as NAME://HOST:PORT; an empty host means all interfaces.",
    "log.cleaner.backoff.ms": "How long a cleaner thread waits when no log needs to be cleaned.",
    "log.cleaner.dedupe.buffer.size": (
        "The memory that all cleaner threads together use for keys; one key takes 200 bytes."
    ),
    "log.cleaner.delete.retention.ms": (
        "How long a compacted topic keeps a tombstone after the first cleaning that saw it."
    ),
    "log.cleaner.enable": "Whether the broker cleans topics whose cleanup.policy has `compact`.",
    "log.cleaner.io.buffer.load.factor": "The share of log.cleaner.dedupe.buffer.size that keys may fill.",
    "log.cleaner.io.buffer.size": (
        "The memory that all cleaner threads together use to read records; a larger batch gets what it needs."
    ),
    "log.cleaner.io.max.bytes.per.second": (
        "The maximum bytes per second that all cleaner threads together read and write."
    ),
    "log.cleaner.max.compaction.lag.ms": (
        "The maximum time that a record waits for compaction, whatever the dirty ratio of its log."
    ),
    "log.cleaner.min.cleanable.ratio": "The minimum share of dirty bytes in a log that makes it ready for cleaning.",
    "log.cleaner.min.compaction.lag.ms": "The minimum time that a record stays uncompacted.",
    "log.cleaner.threads": "The number of cleaner threads; each one runs a process while it cleans.",
    "log.cleanup.policy": "`delete` removes old segments by age and size; `compact` keeps the last record of each key.",
    "log.dir": "The data directory, if log.dirs is unset.",
    "log.dirs": "The data directories, separated by commas.",
    "log.flush.interval.messages": "The number of records after which the broker flushes a partition to disk.",
    "log.flush.interval.ms": (
        "The maximum time that records stay in memory before the broker flushes them to disk. If unset, "
        "log.flush.scheduler.interval.ms."
    ),
    "log.flush.scheduler.interval.ms": (
        "How often the broker checks whether a partition must be flushed (log.flush.interval.ms)."
    ),
    "log.index.interval.bytes": "The bytes of records between two entries of the offset index.",
    "log.index.size.max.bytes": "The maximum size of an index file; the segment is rolled when it is full.",
    "log.message.timestamp.after.max.ms": "How far the timestamp of a record may be ahead of the broker's clock.",
    "log.message.timestamp.before.max.ms": "How far the timestamp of a record may be behind the broker's clock.",
    "log.message.timestamp.type": (
        "Whether the timestamp of a record is set by the producer (CreateTime) or by the broker (LogAppendTime)."
    ),
    "log.retention.bytes": "The size of a partition above which its oldest segments are deleted; -1 for no limit.",
    "log.retention.check.interval.ms": "How often the broker looks for segments to delete.",
    "log.retention.hours": "How many hours records are kept, if log.retention.minutes and log.retention.ms are unset.",
    "log.retention.minutes": "How many minutes records are kept, if log.retention.ms is unset.",
    "log.retention.ms": "How long records are kept; -1 for no limit. If unset, log.retention.minutes.",
    "log.roll.hours": "The hours after which a segment is rolled, if log.roll.ms is unset.",
    "log.roll.jitter.hours": (
        "The maximum hours that are randomly subtracted from log.roll.hours, if log.roll.jitter.ms is unset."
    ),
    "log.roll.jitter.ms": (
        "The maximum time that is randomly subtracted from log.roll.ms, so that segments do not all roll at once."
    ),
    "log.roll.ms": "The time after which a segment is rolled, even if it is not full. If unset, log.roll.hours.",
    "log.segment.bytes": "The maximum size of a segment file.",
    "log.segment.delete.delay.ms": "How long the files of a deleted segment stay on disk.",
    "max.connection.creation.rate": (
        "The maximum number of new connections per second; others wait. Can be set for one listener, too."
    ),
    "max.connections": (
        "The maximum number of connections to the broker; others wait. Can be set for one listener, too."
    ),
    "max.connections.per.ip": "The maximum number of connections from one address; others are refused.",
    "max.connections.per.ip.overrides": (
        "The maximum number of connections from some hosts or addresses, as HOST:COUNT, separated by commas."
    ),
    "max.incremental.fetch.session.cache.slots": "The maximum number of fetch sessions that the broker keeps.",
    "max.request.partition.size.limit": (
        "The maximum number of partitions in the response to one DescribeTopicPartitions request."
    ),
    "message.max.bytes": "The maximum size of a record batch, after compression.",
    "min.insync.replicas": (
        "The minimum number of in-sync replicas, the leader included, for a write with acks=all to succeed."
    ),
    "node.id": "The id of this broker, unique in its cluster. If neither node.id nor broker.id is set, 1.",
    "num.io.threads": (
        "The number of threads for work that waits for the disk: cold reads, searches by time, new logs. A change "
        "takes effect at the next start."
    ),
    "num.partitions": "The number of partitions of topics that are created without one.",
    "num.recovery.threads.per.data.dir": (
        "The number of threads per data directory that load and recover logs at startup."
    ),
    "num.replica.fetchers": (
        "The number of fetchers that a broker runs for each leader that it replicates from. A fetcher has at most 250 "
        "partitions; where there are more, the broker runs more fetchers."
    ),
    "offset.metadata.max.bytes": "The maximum size of the metadata that a client may store with a committed offset.",
    "offsets.load.buffer.size": "The bytes of the offsets topic that are read at once when a group coordinator loads.",
    "offsets.retention.check.interval.ms": "How often the group coordinator looks for expired offsets.",
    "offsets.retention.minutes": (
        "How long a committed offset is kept after its group has no member that consumes the partition."
    ),
    "offsets.topic.compression.codec": "The compression codec of the offsets topic, by number; 0 is none.",
    "offsets.topic.num.partitions": (
        "The number of partitions of the offsets topic when it is created. It cannot be changed later."
    ),
    "offsets.topic.replication.factor": (
        "The replication factor of the offsets topic when it is created. If unset, 3, or the number of brokers if "
        "that is smaller."
    ),
    "offsets.topic.segment.bytes": (
        "The segment size of the offsets topic when it is created; small segments load faster."
    ),
    "producer.id.expiration.check.interval.ms": "How often the broker looks for expired producer ids.",
    "producer.id.expiration.ms": (
        "How long a partition remembers the sequence numbers of a producer that sends nothing."
    ),
    "principal.builder.class": (
        "The Java class that says as whom a client is known. The broker accepts Apache Kafka's own "
        "DefaultKafkaPrincipalBuilder, does what it does, and refuses any other."
    ),
    "password.encoder.iterations": (
        "The number of hash iterations that derive the encryption key from password.encoder.secret."
    ),
    "password.encoder.key.length": (
        "The length of the encryption key derived from password.encoder.secret, in bits: 128, 192 or 256."
    ),
    "password.encoder.keyfactory.algorithm": (
        "The algorithm that derives the encryption key from password.encoder.secret: PBKDF2WithHmacSHA512, "
        "PBKDF2WithHmacSHA256 or PBKDF2WithHmacSHA1."
    ),
    "password.encoder.cipher.algorithm": (
        "The cipher that encrypts passwords in dynamic configurations: AES/CBC/PKCS5Padding."
    ),
    "password.encoder.old.secret": (
        "The former password.encoder.secret, while the secret is replaced: the broker decrypts with it the passwords "
        "that it encrypted."
    ),
    "password.encoder.secret": (
        "The secret that encrypts passwords in dynamic configurations before they are stored in the metadata. If "
        "unset, they are stored unencrypted."
    ),
    "queued.max.request.bytes": (
        "The maximum bytes of requests in memory; above it the broker reads no more from its sockets. With -1 the "
        "broker chooses."
    ),
    "replica.fetch.backoff.ms": "How long a follower waits before it fetches a partition again after an error.",
    "replica.fetch.max.bytes": "The maximum bytes of one partition that a follower fetches at once.",
    "replica.fetch.min.bytes": "The minimum bytes that a leader waits for before it answers a follower's fetch.",
    "replica.fetch.response.max.bytes": "The maximum bytes in the response to one fetch of a follower.",
    "replica.fetch.wait.max.ms": "The maximum time that a leader lets a follower's fetch wait for records.",
    "replica.high.watermark.checkpoint.interval.ms": (
        "How often the broker writes the high watermarks of its partitions to disk."
    ),
    "replica.lag.max.messages": (
        "The maximum number of records that an in-sync follower may be behind its leader. If unset, only "
        "replica.lag.time.max.ms counts."
    ),
    "replica.lag.time.max.ms": "The leader removes a follower from the ISR that was not caught up for this long.",
    "replica.selector.class": (
        "`RackAwareReplicaSelector` lets consumers read from an in-sync replica in their own rack."
    ),
    "replica.socket.timeout.ms": "How long a follower waits for the answer of its leader.",
    "quota.window.num": "The number of samples over which the usage of client quotas is measured.",
    "quota.window.size.seconds": "The length of one sample in which the usage of client quotas is measured.",
    "replication.quota.window.num": "The number of samples over which throttled replication rates are measured.",
    "replication.quota.window.size.seconds": (
        "The length of one sample in which throttled replication rates are measured."
    ),
    "security.inter.broker.protocol": "The security protocol between brokers, if inter.broker.listener.name is unset.",
    "share.coordinator.cold.partition.snapshot.interval.ms": (
        "How old the last snapshot of a share partition may become while it does not change."
    ),
    "share.coordinator.load.buffer.size": "The bytes that are read at once when the state of share groups is loaded.",
    "share.coordinator.snapshot.update.records.per.snapshot": (
        "How many changes of a share partition are stored between two snapshots."
    ),
    "share.coordinator.state.topic.compression.codec": (
        "The number of the compression codec for records of the share-group state topic; 0 is none."
    ),
    "share.coordinator.state.topic.min.isr": (
        "The min.insync.replicas of the share-group state topic when it is created."
    ),
    "share.coordinator.state.topic.num.partitions": (
        "The number of partitions of the share-group state topic when it is created."
    ),
    "share.coordinator.state.topic.prune.interval.ms": (
        "How often records of the share-group state topic are deleted that newer snapshots replace."
    ),
    "share.coordinator.state.topic.replication.factor": (
        "The replication factor of the share-group state topic when it is created. If unset, at most the "
        "number of brokers."
    ),
    "share.coordinator.state.topic.segment.bytes": (
        "The segment size of the share-group state topic when it is created."
    ),
    "socket.listen.backlog.size": "The maximum number of connections that wait for the broker to accept them.",
    "sasl.enabled.mechanisms": (
        "The SASL mechanisms that clients may use on SASL listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER, GSSAPI."
    ),
    "sasl.jaas.config": (
        "The JAAS login module of a SASL mechanism, with its options: the passwords of PLAIN users (user_NAME), the "
        "user name and password with which this broker logs in to other brokers (username, password), for GSSAPI the "
        "broker's principal and its keytab (principal, keyTab), and for OAUTHBEARER the client id and secret with "
        "which this broker gets its own tokens (clientId, clientSecret, scope). It is read for one listener and "
        "mechanism only, as listener.name.NAME.MECHANISM.sasl.jaas.config."
    ),
    "sasl.kerberos.principal.to.local.rules": (
        "The rules that turn the Kerberos principal of a client into a user name (GSSAPI). The first rule that "
        "applies counts."
    ),
    "sasl.kerberos.service.name": (
        "The first part of the broker's Kerberos principal, which clients are configured with (GSSAPI)."
    ),
    "sasl.mechanism.inter.broker.protocol": (
        "The SASL mechanism with which brokers log in to each other, if their listener uses SASL. If unset, GSSAPI if "
        "the listener offers it, or else the first mechanism for which this broker has a user name and a password "
        "(sasl.jaas.config)."
    ),
    "sasl.client.callback.handler.class": (
        "The Java class by which brokers log in to each other. The broker accepts the names of Apache Kafka's own "
        "classes, or none, and refuses any other."
    ),
    "sasl.login.class": (
        "The Java class by which brokers get what they log in to each other with. The broker accepts the names of "
        "Apache Kafka's own classes, or none, and refuses any other."
    ),
    "sasl.login.callback.handler.class": (
        "The Java class that gets a broker's own OAUTHBEARER token. The broker accepts the name of Apache Kafka's own "
        "class, or none, and refuses to start with another."
    ),
    "sasl.login.refresh.window.factor": (
        "The part of its lifetime after which a broker replaces its own OAUTHBEARER token "
        "(sasl.oauthbearer.token.endpoint.url)."
    ),
    "sasl.oauthbearer.client.credentials.client.id": (
        "The client id with which a broker gets its own OAUTHBEARER token (sasl.oauthbearer.token.endpoint.url)."
    ),
    "sasl.oauthbearer.client.credentials.client.secret": (
        "The secret that belongs to sasl.oauthbearer.client.credentials.client.id."
    ),
    "sasl.oauthbearer.clock.skew.seconds": (
        "How far the clock of the issuer of an OAUTHBEARER token may differ from the broker's clock."
    ),
    "sasl.oauthbearer.expected.audience": (
        "The audiences that the broker accepts in an OAUTHBEARER token, separated by commas. Required for OAUTHBEARER."
    ),
    "sasl.oauthbearer.expected.issuer": (
        "The issuer that the broker accepts in an OAUTHBEARER token. Required for OAUTHBEARER."
    ),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": (
        "How often the broker fetches the keys that sign OAUTHBEARER tokens (sasl.oauthbearer.jwks.endpoint.url)."
    ),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": (
        "How long the broker waits before it fetches the keys of OAUTHBEARER tokens again, after that failed or when a "
        "token names an unknown key (sasl.oauthbearer.jwks.endpoint.url)."
    ),
    "sasl.oauthbearer.jwks.endpoint.url": (
        "The URL of the keys that sign OAUTHBEARER tokens: https://... or file:///... It must be listed in "
        "org.apache.kafka.sasl.oauthbearer.allowed.urls."
    ),
    "sasl.oauthbearer.jwt.retriever.class": (
        "The Java class that gets a broker's own OAUTHBEARER token. The broker accepts DefaultJwtRetriever, "
        "ClientCredentialsJwtRetriever and FileJwtRetriever of Apache Kafka, and does what they do."
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        "The Java class that validates OAUTHBEARER tokens. The broker accepts DefaultJwtValidator and "
        "BrokerJwtValidator of Apache Kafka, does what they do, and refuses any other."
    ),
    "sasl.oauthbearer.assertion.file": (
        "A file with a signed assertion to get a broker's own OAUTHBEARER token with. Barnabas gets tokens without: "
        "brokers that log in to each other by OAUTHBEARER refuse to start with it."
    ),
    "sasl.oauthbearer.assertion.private.key.file": (
        "The key of assertions to get a broker's own OAUTHBEARER token with. Barnabas gets tokens without: brokers "
        "that log in to each other by OAUTHBEARER refuse to start with it."
    ),
    "sasl.oauthbearer.assertion.template.file": (
        "What assertions say that get a broker's own OAUTHBEARER token. Barnabas gets tokens without: brokers that log "
        "in to each other by OAUTHBEARER refuse to start with it."
    ),
    "sasl.oauthbearer.scope": "The scope that a broker asks for with its own OAUTHBEARER token.",
    "sasl.oauthbearer.token.endpoint.url": (
        "The URL at which brokers that log in to each other by OAUTHBEARER get their tokens: https://... of the "
        "issuer, or file:///... of a file that holds a token. It must be listed in "
        "org.apache.kafka.sasl.oauthbearer.allowed.urls."
    ),
    "sasl.oauthbearer.sub.claim.name": "The claim of an OAUTHBEARER token that holds the user name.",
    "sasl.server.callback.handler.class": (
        "The Java class that validates OAUTHBEARER tokens. The broker accepts the name of Apache Kafka's own class, or "
        "none, and refuses to start with another."
    ),
    "sasl.server.max.receive.size": "The maximum size of a request that a client sends before it has logged in.",
    "socket.receive.buffer.bytes": "The receive buffer of a socket; -1 leaves it to the operating system.",
    "socket.request.max.bytes": "The maximum size of a request; a larger one makes the broker close the connection.",
    "socket.send.buffer.bytes": "The send buffer of a socket; -1 leaves it to the operating system.",
    "ssl.allow.dn.changes": "Whether a new certificate of a running broker may have another subject than the old one.",
    "ssl.allow.san.changes": (
        "Whether a new certificate of a running broker may lack names (subject alternative names) of the old one."
    ),
    "ssl.cipher.suites": (
        "The cipher suites that TLS connections may use, by Java's names. If empty, the defaults of OpenSSL."
    ),
    "ssl.client.auth": (
        "Whether TLS clients must present a certificate: `required`, `requested` (optional) or `none`. On SASL_SSL "
        "listeners only listener.name.NAME.ssl.client.auth takes effect."
    ),
    "ssl.enabled.protocols": "The TLS versions that the broker accepts: TLSv1.2, TLSv1.3.",
    "ssl.endpoint.identification.algorithm": (
        "`https`: a broker checks that the certificate of another broker names the host that it connects to. Empty: "
        "it does not."
    ),
    "ssl.engine.factory.class": (
        "The Java class that makes TLS connections. The broker accepts Apache Kafka's own DefaultSslEngineFactory, or "
        "none, and refuses any other."
    ),
    "ssl.key.password": "The password of the private key in the keystore, or in ssl.keystore.key.",
    "ssl.keystore.certificate.chain": (
        "The broker's certificate and the intermediate certificates up to its CA, as PEM text (ssl.keystore.type=PEM)."
    ),
    "ssl.keystore.key": "The private key of the broker's certificate, as PEM text (ssl.keystore.type=PEM).",
    "ssl.keystore.location": "The file with the broker's private key and certificates.",
    "ssl.keystore.password": "The password of the keystore file; PEM files have none.",
    "ssl.keystore.type": (
        "The format of the keystore: PEM or PKCS12. JKS is accepted if the file is PKCS12, which newer versions of "
        "Java write even under that name."
    ),
    "ssl.principal.mapping.rules": (
        "The rules that turn the subject of a client's certificate into the name of its principal, separated by "
        "commas: RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT. The first rule that matches is used."
    ),
    "ssl.protocol": (
        "The newest TLS version that the broker uses: TLSv1.2 or TLSv1.3; TLS means the newest that it knows."
    ),
    "ssl.trustmanager.algorithm": (
        "How Java checks certificates. The broker accepts PKIX and SunX509, checks as PKIX does, and refuses any other."
    ),
    "ssl.truststore.certificates": "The certificates of trusted CAs, as PEM text (ssl.truststore.type=PEM).",
    "ssl.truststore.location": (
        "The file with the certificates of the CAs that the broker trusts. If unset, the CAs that the operating system "
        "trusts."
    ),
    "ssl.truststore.password": "The password of the truststore file; PEM files have none.",
    "ssl.truststore.type": (
        "The format of the truststore: PEM or PKCS12. JKS is accepted if the file is PKCS12, which newer versions of "
        "Java write even under that name."
    ),
    "telemetry.max.bytes": "The largest push of metrics that a client may send, with telemetry.otlp.endpoint.",
    "transaction.max.timeout.ms": "The maximum transaction timeout that a producer may ask for.",
    "transaction.partition.verification.enable": (
        "Whether the broker checks, before it stores a transactional batch of an older producer, that its partition"
        " is part of the transaction."
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        "How often the transaction coordinator looks for expired transactional ids."
    ),
    "transaction.state.log.load.buffer.size": (
        "The bytes of the transaction topic that are read at once when a transaction coordinator loads."
    ),
    "transaction.state.log.min.isr": (
        "The min.insync.replicas of the transaction topic, at most its replication factor."
    ),
    "transaction.state.log.num.partitions": (
        "The number of partitions of the transaction topic when it is created. It cannot be changed later."
    ),
    "transaction.state.log.replication.factor": (
        "The replication factor of the transaction topic when it is created. If unset, 3, or the number of brokers "
        "if that is smaller."
    ),
    "transaction.state.log.segment.bytes": "The segment size of the transaction topic when it is created.",
    "transactional.id.expiration.ms": (
        "How long the transaction coordinator remembers a transactional id that is not used."
    ),
    "unclean.leader.election.enable": (
        "Whether a replica that is not in sync may become leader if no other can. Records may be lost."
    ),
    "zookeeper.connect": (
        "The ZooKeeper ensemble that holds the metadata, as HOST:PORT,HOST:PORT/CHROOT. If unset, a file holds it "
        "(metadata.store)."
    ),
    "zookeeper.connection.timeout.ms": (
        "How long a starting broker waits for ZooKeeper. If unset, zookeeper.session.timeout.ms."
    ),
    "zookeeper.session.timeout.ms": (
        "The session timeout: ZooKeeper expires the session of a broker that it did not hear from for this long."
    ),
    "zookeeper.set.acl": (
        "Whether the broker's nodes in ZooKeeper may be read and written only by zookeeper.auth.username."
    ),
    "zookeeper.ssl.cipher.suites": (
        "The cipher suites that TLS connections to ZooKeeper may use, by Java's names. If empty, OpenSSL's defaults."
    ),
    "zookeeper.ssl.client.enable": "Whether the broker connects to ZooKeeper with TLS.",
    "zookeeper.ssl.enabled.protocols": (
        "The TLS versions of connections to ZooKeeper: TLSv1.2, TLSv1.3. If unset, zookeeper.ssl.protocol."
    ),
    "zookeeper.ssl.endpoint.identification.algorithm": (
        "`HTTPS`: the broker checks that ZooKeeper's certificate names the host that it connects to. Empty: it does "
        "not."
    ),
    "zookeeper.ssl.keystore.location": (
        "The file with the private key and certificate that the broker presents to ZooKeeper."
    ),
    "zookeeper.ssl.keystore.password": (
        "The password of the file in zookeeper.ssl.keystore.location, or of the private key in it if it is PEM."
    ),
    "zookeeper.ssl.keystore.type": (
        "The format of the file in zookeeper.ssl.keystore.location: PEM or PKCS12. If unset, the ending of its name "
        "decides."
    ),
    "zookeeper.ssl.protocol": (
        "The TLS version of connections to ZooKeeper, if zookeeper.ssl.enabled.protocols is unset."
    ),
    "zookeeper.ssl.truststore.location": (
        "The file with the certificates of the CAs that the broker trusts for ZooKeeper. If unset, the CAs that the "
        "operating system trusts."
    ),
    "zookeeper.ssl.truststore.password": (
        "The password of the file in zookeeper.ssl.truststore.location; PEM files have none."
    ),
    "zookeeper.ssl.truststore.type": (
        "The format of the file in zookeeper.ssl.truststore.location: PEM or PKCS12. If unset, the ending of its name "
        "decides."
    ),
}

TOPIC: Final[dict[str, str]] = {
    "cleanup.policy": "`delete` removes old segments by age and size; `compact` keeps the last record of each key.",
    "compression.gzip.level": "The compression level if compression.type is gzip; -1 is the default of gzip.",
    "compression.lz4.level": "The compression level if compression.type is lz4.",
    "compression.type": "The compression codec of stored batches; `producer` keeps the codec that the producer used.",
    "compression.zstd.level": "The compression level if compression.type is zstd.",
    "delete.retention.ms": "How long a tombstone is kept after the first cleaning that saw it.",
    "errors.deadletterqueue.group.enable": (
        "Whether share groups may have this topic for their dead letters (errors.deadletterqueue.topic.name)."
    ),
    "file.delete.delay.ms": "How long the files of a deleted segment stay on disk.",
    "flush.messages": "The number of records after which the broker flushes a partition to disk.",
    "flush.ms": "The maximum time that records stay in memory before the broker flushes them to disk.",
    "follower.replication.throttled.replicas": (
        "The replicas, as PARTITION:BROKER or `*`, whose brokers fetch at most at follower.replication.throttled.rate."
    ),
    "index.interval.bytes": "The bytes of records between two entries of the offset index.",
    "internal.segment.bytes": "A segment size below the minimum of segment.bytes, for tests.",
    "leader.replication.throttled.replicas": (
        "The replicas, as PARTITION:BROKER or `*`, whose brokers send to followers at most at "
        "leader.replication.throttled.rate."
    ),
    "max.compaction.lag.ms": (
        "The maximum time that a record waits for compaction, whatever the dirty ratio of its log."
    ),
    "max.message.bytes": "The maximum size of a record batch, after compression.",
    "message.timestamp.after.max.ms": "How far the timestamp of a record may be ahead of the broker's clock.",
    "message.timestamp.before.max.ms": "How far the timestamp of a record may be behind the broker's clock.",
    "message.timestamp.type": (
        "Whether the timestamp of a record is set by the producer (CreateTime) or by the broker (LogAppendTime)."
    ),
    "min.cleanable.dirty.ratio": "The minimum share of dirty bytes in a log that makes it ready for cleaning.",
    "min.compaction.lag.ms": "The minimum time that a record stays uncompacted.",
    "min.insync.replicas": (
        "The minimum number of in-sync replicas, the leader included, for a write with acks=all to succeed."
    ),
    "retention.bytes": "The size of a partition above which its oldest segments are deleted; -1 for no limit.",
    "retention.ms": "How long records are kept; -1 for no limit.",
    "segment.bytes": "The maximum size of a segment file.",
    "segment.index.bytes": "The maximum size of an index file; the segment is rolled when it is full.",
    "segment.jitter.ms": (
        "The maximum time that is randomly subtracted from segment.ms, so that segments do not all roll at once."
    ),
    "segment.ms": "The time after which a segment is rolled, even if it is not full.",
}
