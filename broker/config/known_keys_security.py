"""Kafka's broker keys that do nothing in oncelog: of coordinators and of security. `definitions_known.py` reads it.

Names, types, defaults, limits and update modes are those of Kafka 4.4.0's ``ConfigDef``; a test compares them. The
sentences are ours."""

TABLE = """\
# Coordinators of groups and transactions
add.partitions.to.txn.retry.backoff.ms int 20 1..
    Milliseconds until the broker asks again to add a partition to a transaction.
add.partitions.to.txn.retry.backoff.max.ms int 100 0..
    Milliseconds for which the broker asks again to add a partition to a transaction.
group.coordinator.append.linger.ms int -1 -1..
    Milliseconds that the coordinator gathers records before it writes them; -1 is by load.
group.coordinator.background.threads int 2 1..
    Threads for the coordinator's background work.
group.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster-wide
    Bytes of the largest buffer that the coordinator keeps for reuse.
group.coordinator.threads int 4 1..
    Threads of the group coordinator.

# Share groups
group.share.assignors list simple
    The assignor of share groups.
group.share.persister.class.name string org.apache.kafka.server.share.persister.DefaultStatePersister internal
    The class that keeps the state of share partitions.
share.coordinator.append.linger.ms int -1 -1..
    Milliseconds that the coordinator gathers records before it writes them; -1 is by load.
share.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster-wide
    Bytes of the largest buffer that the coordinator keeps for reuse.
share.coordinator.load.buffer.size int 5242880 1..
    Bytes of one read when the broker loads share partitions.
share.coordinator.threads int 1 1..
    Threads of the share coordinator.

# Streams groups
group.streams.max.size int 2147483647 1..
    The most members of a streams group.

# Who clients are
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder per-broker
    The class that determines the principal of a connection.
security.providers string null
    Classes that make security providers.
sasl.client.callback.handler.class class null
    The class that handles the broker's callbacks when it is the client.
sasl.login.callback.handler.class class null
    The class that handles the callbacks of a login.
sasl.login.class class null
    The class that logs in.
sasl.login.connect.timeout.ms int null
    Milliseconds that connecting to the identity provider may take.
sasl.login.read.timeout.ms int null
    Milliseconds that a response of the identity provider may take.
sasl.login.retry.backoff.ms long 100
    Milliseconds until a login is tried again, at first.
sasl.login.retry.backoff.max.ms long 10000
    The most milliseconds until a login is tried again.
sasl.mechanism.controller.protocol string GSSAPI
    The mechanism that brokers use with controllers.

# OAuth
sasl.oauthbearer.assertion.algorithm string RS256
    The algorithm that assertions are signed with.
sasl.oauthbearer.assertion.claim.aud string null
    The audience that an assertion names.
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400
    Seconds after which an assertion expires.
sasl.oauthbearer.assertion.claim.iss string null
    The issuer that an assertion names.
sasl.oauthbearer.assertion.claim.jti.include boolean false
    Whether an assertion has an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600
    Seconds before its creation from which on an assertion is valid.
sasl.oauthbearer.assertion.claim.sub string null
    The subject that an assertion names.
sasl.oauthbearer.assertion.file string null
    A file with a finished assertion.
sasl.oauthbearer.assertion.private.key.file string null
    The key that assertions are signed with.
sasl.oauthbearer.assertion.private.key.passphrase password null
    The passphrase of that key.
sasl.oauthbearer.assertion.template.file string null
    A file with more claims of assertions.
sasl.oauthbearer.client.credentials.client.id string null
    The client id in the request for a token.
sasl.oauthbearer.client.credentials.client.secret password null
    The client secret in the request for a token.
sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
    The class that gets a token.
sasl.oauthbearer.jwt.validator.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
    The class that checks a token.
sasl.oauthbearer.scope string null
    The scope that a token is asked for.
sasl.oauthbearer.token.endpoint.url string null
    The URL of the token endpoint.

# TLS
ssl.engine.factory.class class null per-broker
    The class that makes TLS engines.
"""
