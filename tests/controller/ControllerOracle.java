// Kafka's own controller, without its log and its queue: the other side of test_kafkas_controller.py.
//
// Each line of standard input is a command with its arguments, bytes in hexadecimal. Its result is a line on standard
// output: "ok", the response ("-" if there is none) and the records, each as type:version:bytes; or "error", its code
// and its message; or "defect" and the message of an exception that a controller does not expect. The records are replayed
// before the next command.

package org.apache.kafka.controller;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.OptionalLong;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.AssignReplicasToDirsRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatResponseData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.metadata.*;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.metadata.BrokerHeartbeatReply;
import org.apache.kafka.metadata.BrokerRegistrationReply;
import org.apache.kafka.metadata.FinalizedControllerFeatures;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

public class ControllerOracle {
    static class ManualTime implements Time {
        long ms = 0;

        public long milliseconds() {
            return ms;
        }

        public long nanoseconds() {
            return TimeUnit.MILLISECONDS.toNanos(ms);
        }

        public void sleep(long more) {
            ms += more;
        }
    }

    static final HexFormat HEX = HexFormat.of();

    final ManualTime time = new ManualTime();
    final FeatureControlManager features;
    final ConfigurationControlManager configs;
    final ClusterControlManager cluster;
    final ReplicationControlManager replication;
    long nextOffset = 0;

    ControllerOracle(String clusterId) {
        LogContext log = new LogContext();
        SnapshotRegistry registry = new SnapshotRegistry(log);
        features = new FeatureControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry)
            .setQuorumFeatures(new QuorumFeatures(3000, QuorumFeatures.defaultSupportedFeatureMap(false), List.of(3000)))
            .build();
        configs = new ConfigurationControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry)
            .setKafkaConfigSchema(kafka.server.KafkaRaftServer.configSchema()).setNodeId(3000)
            .setFeatureControl(features).build();
        ReplicationControlManager[] later = new ReplicationControlManager[1];
        cluster = new ClusterControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry)
            .setClusterId(clusterId).setTime(time).setSessionTimeoutNs(TimeUnit.SECONDS.toNanos(9))
            .setFeatureControlManager(features)
            .setBrokerShutdownHandler((id, clean, records) -> later[0].handleBrokerShutdown(id, clean, records))
            .build();
        replication = new ReplicationControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry)
            .setConfigurationControl(configs).setClusterControl(cluster).setFeatureControl(features).build();
        later[0] = replication;
        cluster.activate();
    }

    void replay(ApiMessage record) {
        if (record instanceof TopicRecord one) replication.replay(one);
        else if (record instanceof PartitionRecord one) replication.replay(one);
        else if (record instanceof PartitionChangeRecord one) replication.replay(one);
        else if (record instanceof RemoveTopicRecord one) replication.replay(one);
        else if (record instanceof ClearElrRecord one) replication.replay(one);
        else if (record instanceof ConfigRecord one) configs.replay(one);
        else if (record instanceof FeatureLevelRecord one) features.replay(one);
        else if (record instanceof RegisterBrokerRecord one) cluster.replay(one, nextOffset);
        else if (record instanceof UnregisterBrokerRecord one) cluster.replay(one);
        else if (record instanceof BrokerRegistrationChangeRecord one) cluster.replay(one);
        else throw new IllegalArgumentException(record.toString());
        nextOffset++;
    }

    static byte[] bytes(Message message, short version) {
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] found = new byte[buffer.remaining()];
        buffer.get(found);
        return found;
    }

    static ByteBufferAccessor read(String hex) {
        return new ByteBufferAccessor(ByteBuffer.wrap(HEX.parseHex(hex)));
    }

    static ControllerRequestContext context(short version) {
        return new ControllerRequestContext(
            new RequestHeaderData().setRequestApiVersion(version), KafkaPrincipal.ANONYMOUS, OptionalLong.empty());
    }

    String told(List<ApiMessageAndVersion> records, Message response, short version) {
        StringBuilder line = new StringBuilder("ok ");
        line.append(response == null ? "-" : HEX.formatHex(bytes(response, version)));
        for (ApiMessageAndVersion one : records) {
            line.append(' ').append(one.message().apiKey()).append(':').append(one.version()).append(':')
                .append(HEX.formatHex(bytes(one.message(), one.version())));
        }
        for (ApiMessageAndVersion one : records) replay(one.message());
        return line.toString();
    }

    String run(String[] words) {
        boolean isRequest = List.of("register", "heartbeat", "alter_partition", "assign").contains(words[0]);
        short version = isRequest ? Short.parseShort(words[1]) : 0;
        switch (words[0]) {
            case "replay": {
                ApiMessage record = MetadataRecordType.fromId(Short.parseShort(words[1])).newMetadataRecord();
                record.read(read(words[3]), Short.parseShort(words[2]));
                replay(record);
                return "ok -";
            }
            case "advance":
                time.sleep(Long.parseLong(words[1]));
                return "ok -";
            case "register": {
                var request = new BrokerRegistrationRequestData(read(words[2]), version);
                ControllerResult<BrokerRegistrationReply> result = cluster.registerBroker(
                    request, nextOffset,
                    new FinalizedControllerFeatures(features.finalizedFeatures(Long.MAX_VALUE).featureMap(), Long.MAX_VALUE),
                    version >= 3);
                return told(result.records(), null, version);
            }
            case "heartbeat": {
                var request = new BrokerHeartbeatRequestData(read(words[2]), version);
                cluster.trackBrokerHeartbeat(request.brokerId(), request.brokerEpoch());
                OptionalLong registered = cluster.registerBrokerRecordOffset(request.brokerId());
                ControllerResult<BrokerHeartbeatReply> result =
                    replication.processBrokerHeartbeat(request, registered.orElse(0));
                BrokerHeartbeatReply reply = result.response();
                String line = told(result.records(), new BrokerHeartbeatResponseData().setIsCaughtUp(reply.isCaughtUp())
                    .setIsFenced(reply.isFenced()).setShouldShutDown(reply.shouldShutDown()), version);
                if (reply.inControlledShutdown())
                    cluster.heartbeatManager().maybeUpdateControlledShutdownOffset(request.brokerId(), nextOffset - 1);
                return line;
            }
            case "alter_partition": {
                var result = replication.alterPartition(
                    context(version), new AlterPartitionRequestData(read(words[2]), version));
                return told(result.records(), result.response(), version);
            }
            case "assign": {
                var result = replication.handleAssignReplicasToDirs(
                    new AssignReplicasToDirsRequestData(read(words[2]), version));
                return told(result.records(), result.response(), version);
            }
            case "elect": {
                List<ApiMessageAndVersion> records = new ArrayList<>();
                byte type = Byte.parseByte(words[3]);
                ApiError error = replication.electLeader(
                    words[1], Integer.parseInt(words[2]), ElectionType.valueOf(type), records);
                if (error.isFailure()) return "error " + error.error().code() + " " + error.message();
                return told(records, null, (short) 0);
            }
            case "reassign": {
                List<ApiMessageAndVersion> records = new ArrayList<>();
                List<Integer> replicas = null;
                if (!words[3].equals("-")) {
                    replicas = new ArrayList<>();
                    if (!words[3].equals("none"))
                        for (String id : words[3].split(",")) replicas.add(Integer.parseInt(id));
                }
                replication.alterPartitionReassignment(
                    words[1],
                    new AlterPartitionReassignmentsRequestData.ReassignablePartition()
                        .setPartitionIndex(Integer.parseInt(words[2])).setReplicas(replicas),
                    records, words[4].equals("1"));
                return told(records, null, (short) 0);
            }
            case "unregister": {
                var result = replication.unregisterBroker(Integer.parseInt(words[1]));
                return told(result.records(), null, version);
            }
            case "balance": {
                var result = replication.maybeBalancePartitionLeaders();
                return told(result.records(), null, version);
            }
            case "elect_unclean": {
                var result = replication.maybeElectUncleanLeaders();
                return told(result.records(), null, version);
            }
            case "fence_overdue": {
                // As maybeFenceOneStaleBroker, but in the order of the ids.
                TreeSet<Integer> overdue = new TreeSet<>();
                BrokerHeartbeatManager heartbeats = cluster.heartbeatManager();
                for (var one = heartbeats.tracker().maybeRemoveExpired(); one.isPresent();
                        one = heartbeats.tracker().maybeRemoveExpired()) {
                    var known = cluster.registration(one.get().id());
                    if (known != null && known.epoch() == one.get().epoch()) overdue.add(known.id());
                }
                StringBuilder line = new StringBuilder("ok -");
                for (int id : overdue) {
                    List<ApiMessageAndVersion> records = new ArrayList<>();
                    replication.handleBrokerFenced(id, records);
                    heartbeats.fence(id);
                    line.append(told(records, null, version).substring("ok -".length()));
                }
                return line.toString();
            }
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        ControllerOracle oracle = null;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("begin")) {
                oracle = new ControllerOracle(words[1]);
                continue;
            }
            try {
                out.append(oracle.run(words));
            } catch (org.apache.kafka.common.errors.ApiException refused) {
                ApiError error = ApiError.fromThrowable(refused);
                out.append("error ").append(error.error().code()).append(' ').append(error.message());
            } catch (IllegalArgumentException | IllegalStateException defect) {
                out.append("defect ").append(defect.getMessage());
            }
            out.append('\n');
        }
        System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }
}
