"""Kafka's broker keys that do nothing in oncelog: of a node, its cluster, its storage. `definitions_known.py` reads it.

Names, types, defaults, limits and update modes are those of Kafka 4.4.0's ``ConfigDef``; a test compares them. The
sentences are ours."""

TABLE = """\
# Threads, queues and connections
background.threads int 10 1.. cluster-wide
    Threads for background work.
num.io.threads int 8 1.. cluster-wide
    Threads that handle requests.
num.network.threads int 3 1.. cluster-wide
    Threads that read requests and write responses, for each listener.
num.recovery.threads.per.data.dir int 2 1.. cluster-wide
    Threads that recover logs at the start and flush them at the stop.
queued.max.requests int 500 1..
    Requests that may wait for a thread.
server.max.startup.time.ms long 9223372036854775807 0.. internal
    Milliseconds that a start may take.
early.start.listeners list null
    Listeners that accept connections before the authorizer is ready.
inter.broker.listener.name string null
    The listener that brokers connect to among themselves.
security.inter.broker.protocol string PLAINTEXT PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL
    The security protocol among brokers if inter.broker.listener.name is not set.
socket.connection.setup.timeout.ms long 10000
    Milliseconds that connecting to another node may take, at first.
socket.connection.setup.timeout.max.ms long 30000
    Milliseconds that connecting to another node may take, after several failures.
delete.records.purgatory.purge.interval.requests int 1
    Requests after which finished ones are removed from the purgatory of DeleteRecords.
fetch.purgatory.purge.interval.requests int 1000
    Requests after which finished ones are removed from the purgatory of Fetch.
producer.purgatory.purge.interval.requests int 1000
    Requests after which finished ones are removed from the purgatory of Produce.
share.fetch.purgatory.purge.interval.requests int 1000
    Requests after which finished ones are removed from the purgatory of ShareFetch.
unstable.feature.versions.enable boolean false internal
    Whether unreleased levels of features are allowed.

# The cluster: controllers, registration, replication
controlled.shutdown.enable boolean true
    Whether a broker that stops hands over its leaderships first.
controller.performance.always.log.threshold.ms long 2000 0.. internal
    Milliseconds beyond which an event of the controller is logged as slow.
controller.performance.sample.period.ms long 60000 100.. internal
    Milliseconds between two reports of the controller's slowest events.
controller.quorum.append.linger.ms int 25 0..
    Milliseconds that the leader of the quorum gathers records before it writes them.
controller.quorum.auto.join.enable boolean false
    Whether a controller joins the voters by itself.
controller.quorum.bootstrap.servers list ""
    Addresses by which the quorum is found, as HOST:PORT.
controller.quorum.election.backoff.max.ms int 1000 0..
    The most milliseconds until a new election after one without a winner.
controller.quorum.election.timeout.ms int 1000 0..
    Milliseconds that a candidate waits for votes.
controller.quorum.fetch.max.bytes int 1048576 1..
    Bytes of metadata records in one fetch of the quorum.
controller.quorum.fetch.snapshot.max.bytes int 1048576 1..
    Bytes of a metadata snapshot in one fetch of the quorum.
controller.quorum.fetch.timeout.ms int 2000 0..
    Milliseconds without a fetch after which a leader resigns, or a follower stands for election.
controller.quorum.request.timeout.ms int 2000 0..
    Milliseconds that a request within the quorum may take.
controller.quorum.retry.backoff.ms int 20 0..
    Milliseconds until a request within the quorum is tried again.
controller.quorum.voters list ""
    The voters of the quorum, as ID@HOST:PORT.
controller.socket.timeout.ms int 30000
    Milliseconds that the controller waits for a broker's socket.
internal.metadata.delete.delay.millis long 60000 internal
    Milliseconds until a deleted file of the metadata log is removed.
internal.metadata.log.segment.bytes int null internal
    Size in bytes at which the metadata log starts a new segment, for tests.
internal.metadata.max.batch.size.in.bytes int 8388608 internal
    Bytes of one batch of metadata records.
metadata.log.dir string null
    The directory of the metadata log; the first of log.dirs if not set.
metadata.max.idle.interval.ms int 500 0..
    Milliseconds after which an idle controller writes a record without content.
num.replica.fetchers int 1 1.. cluster-wide
    Threads for each other broker that fetch from it.
replica.socket.receive.buffer.bytes int 65536
    Bytes of the receive buffer of a follower's connection.
replica.socket.timeout.ms int 30000
    Milliseconds that a follower waits for its leader's socket.
follower.fetch.last.tiered.offset.enable boolean false cluster-wide
    Whether an empty follower begins at the last offset in tiered storage.

# Data directories
log.dir.failure.timeout.ms long 30000 1..
    Milliseconds after which a broker stops if it cannot report a failed directory.
num.replica.alter.log.dirs.threads int null
    Threads that move replicas from one directory to another.
log.cleaner.io.buffer.load.factor double 0.9 cluster-wide
    The share of the cleaner's offset map that one cleaning fills.
log.cleaner.io.buffer.size int 524288 0.. cluster-wide
    Bytes of all cleaners' buffers for reading and writing.
log.cleaner.io.max.bytes.per.second double 1.7976931348623157E308 cluster-wide
    Bytes that all cleaners read and write in a second.
log.cleaner.threads int 1 0.. cluster-wide
    Threads that clean logs.
offsets.load.buffer.size int 5242880 1..
    Bytes of one read when the broker loads offsets.
transaction.state.log.load.buffer.size int 5242880 1..
    Bytes of one read when the broker loads transactions.

# Quotas and metrics
alter.log.dirs.replication.quota.window.num int 11 1..
    Samples that are kept of moves between directories.
alter.log.dirs.replication.quota.window.size.seconds int 1 1..
    Seconds of a sample of moves between directories.
client.quota.callback.class class null
    The class that determines the quota of each client.
replica.alter.log.dirs.io.max.bytes.per.second long null 0.. cluster-wide internal
    Bytes in a second that are moved between directories.
kafka.metrics.polling.interval.secs int 10 1..
    Seconds between two rounds of the metrics reporters.
kafka.metrics.reporters list ""
    Classes that report the metrics of Yammer's library.
metric.reporters list org.apache.kafka.common.metrics.JmxReporter cluster-wide
    Classes that report metrics.
metrics.num.samples int 2 1..
    Samples that are kept of a metric.
metrics.recording.level string INFO
    The most detailed metrics that are recorded.
metrics.sample.window.ms long 30000 1..
    Milliseconds of a sample of a metric.

# Plug-ins
alter.config.policy.class.name class null
    The class that may refuse changes of configurations.
config.providers list "" cluster-wide
    Names of providers that put secrets into configurations.
create.topic.policy.class.name class null
    The class that may refuse new topics.

# Tiered storage
remote.fetch.max.wait.ms int 500 1.. cluster-wide
    Milliseconds that a fetch waits for tiered storage.
remote.list.offsets.request.timeout.ms long 30000 1.. cluster-wide
    Milliseconds that ListOffsets waits for tiered storage.
remote.log.index.file.cache.total.size.bytes long 1073741824 1.. cluster-wide
    Bytes of indexes of tiered segments that are kept in local files.
remote.log.index.file.cache.ttl.ms long 900000 -1.. internal
    Milliseconds after which an unused index of a tiered segment is dropped.
remote.log.manager.copier.thread.pool.size int 10 1.. cluster-wide
    Threads that copy segments to tiered storage.
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1.. cluster-wide
    Bytes in a second that are copied to tiered storage.
remote.log.manager.copy.quota.window.num int 11 1..
    Samples that are kept of copying to tiered storage.
remote.log.manager.copy.quota.window.size.seconds int 1 1..
    Seconds of a sample of copying to tiered storage.
remote.log.manager.expiration.thread.pool.size int 10 1.. cluster-wide
    Threads that delete expired segments from tiered storage.
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1.. cluster-wide
    Bytes in a second that are read from tiered storage.
remote.log.manager.fetch.quota.window.num int 11 1..
    Samples that are kept of reading from tiered storage.
remote.log.manager.fetch.quota.window.size.seconds int 1 1..
    Seconds of a sample of reading from tiered storage.
remote.log.manager.follower.thread.pool.size int 2 1.. cluster-wide
    Threads that manage tiered segments on followers.
remote.log.manager.task.interval.ms long 30000 1..
    Milliseconds between two runs of the tasks of tiered storage.
remote.log.manager.task.retry.backoff.ms long 500 1.. internal
    Milliseconds until a failed task of tiered storage is tried again, at first.
remote.log.manager.task.retry.backoff.max.ms long 30000 1.. internal
    The most milliseconds until a failed task of tiered storage is tried again.
remote.log.manager.task.retry.jitter double 0.2 0..0.5 internal
    The random share of that time.
remote.log.manager.thread.pool.size int 2 1..
    Threads for tasks of tiered storage that have no threads of their own.
remote.log.metadata.custom.metadata.max.bytes int 128 0..
    Bytes that a storage plug-in may add to the metadata of a segment.
remote.log.metadata.manager.class.name string \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
    The class that keeps the metadata of tiered segments.
remote.log.metadata.manager.class.path string null
    Where that class is loaded from.
remote.log.metadata.manager.impl.prefix string rlmm.config.
    What its own keys begin with.
remote.log.metadata.manager.listener.name string null
    The listener by which it reaches this broker.
remote.log.reader.max.pending.tasks int 100 1..
    Reads from tiered storage that may wait for a thread.
remote.log.reader.threads int 10 1.. cluster-wide
    Threads that read from tiered storage.
remote.log.storage.manager.class.name string null
    The class that keeps tiered segments.
remote.log.storage.manager.class.path string null
    Where that class is loaded from.
remote.log.storage.manager.impl.prefix string rsm.config.
    What its own keys begin with.
remote.log.storage.system.enable boolean false
    Whether there is tiered storage.
"""
