import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Members of consumer groups in one JVM. Each line of standard input is a command, each line of standard output tells
 * what happened to a member; both are JSON (workers.py says which). Kafka's command-line tools run here too, without a
 * JVM of their own.
 */
public final class GroupWorker {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream EVENTS = System.out;
    private static final Duration POLL = Duration.ofMillis(50);
    private static final Map<String, Member> MEMBERS = new HashMap<>();
    private static volatile Integer exitCode;

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            exitCode = exitCode == null ? code : exitCode;  // some tools catch what their first exit threw, and exit again
            throw new Exited();
        });
        try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                JsonNode command = JSON.readTree(line);
                String name = command.path("member").asText();
                switch (command.get("do").asText()) {
                    case "start" -> {
                        Member member = new Member(name, command);
                        MEMBERS.put(name, member);
                        member.start();
                    }
                    case "tool" -> tool(command);
                    case "remove" -> remove(command);
                    default -> MEMBERS.get(name).commands.add(command);
                }
            }
        }
        Runtime.getRuntime().halt(0);
    }

    /** One event: a line of JSON. */
    private static void tell(String member, String event, Map<String, Object> fields) {
        ObjectNode node = JSON.createObjectNode().put("member", member).put("event", event)
            .put("at", System.nanoTime());
        fields.forEach((key, value) -> node.set(key, JSON.valueToTree(value)));
        synchronized (EVENTS) {
            EVENTS.println(node);
            EVENTS.flush();
        }
    }

    /** A tool of Kafka's, by its main class; its outputs are this JVM's until it ends. */
    private static void tool(JsonNode command) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream outBefore = System.out;
        PrintStream errBefore = System.err;
        exitCode = null;
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        try {
            List<String> arguments = new ArrayList<>();
            command.get("arguments").forEach(one -> arguments.add(one.asText()));
            Class.forName(command.get("main").asText())
                .getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (ReflectiveOperationException thrown) {
            if (exitCode == null) {
                exitCode = 1;
                thrown.printStackTrace();
            }
        } finally {
            System.setOut(outBefore);
            System.setErr(errBefore);
        }
        tell("", "tool", Map.of("exit", exitCode == null ? 0 : exitCode, "out", out.toString(StandardCharsets.UTF_8),
            "err", err.toString(StandardCharsets.UTF_8)));
    }

    /** Removes members by their group.instance.id, or all members where no instance is named. */
    private static void remove(JsonNode command) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", command.get("bootstrap").asText());
        List<MemberToRemove> members = new ArrayList<>();
        command.get("instances").forEach(one -> members.add(new MemberToRemove(one.asText())));
        RemoveMembersFromConsumerGroupOptions options = members.isEmpty()
            ? new RemoveMembersFromConsumerGroupOptions()
            : new RemoveMembersFromConsumerGroupOptions(members);
        String error = "";
        try (Admin admin = Admin.create(properties)) {
            admin.removeMembersFromConsumerGroup(command.get("group").asText(), options).all().get();
        } catch (Exception refused) {
            error = (refused.getCause() == null ? refused : refused.getCause()).getClass().getSimpleName();
        }
        tell("", "removed", Map.of("error", error));
    }

    /** What a tool's exit becomes. */
    private static final class Exited extends RuntimeException {
    }

    /** One member: polls, tells what it read, commits it, tells that. */
    private static final class Member extends Thread implements ConsumerRebalanceListener {
        final LinkedBlockingQueue<JsonNode> commands = new LinkedBlockingQueue<>();
        private final JsonNode settings;
        private KafkaConsumer<byte[], byte[]> consumer;
        private boolean closing;
        private GroupMembershipOperation membership = GroupMembershipOperation.DEFAULT;
        // Read, and still to be committed: a commit in a rebalance is refused.
        private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();

        Member(String name, JsonNode settings) {
            super(name);
            this.settings = settings;
            setDaemon(true);
        }

        @Override
        public void run() {
            Properties properties = new Properties();
            settings.get("config").properties().forEach(one -> properties.put(one.getKey(), one.getValue().asText()));
            try {
                consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                subscribe(settings);
                while (!closing) {
                    for (JsonNode command = commands.poll(); command != null; command = commands.poll()) {
                        obey(command);
                    }
                    read(consumer.poll(POLL));
                }
            } catch (Throwable thrown) {
                tell(getName(), "error", Map.of("name", thrown.getClass().getSimpleName(), "text", String.valueOf(thrown)));
            } finally {
                close();
            }
        }

        private void subscribe(JsonNode wanted) {
            if (wanted.hasNonNull("pattern")) {  // evaluated by the client
                consumer.subscribe(Pattern.compile(wanted.get("pattern").asText()), this);
            } else if (wanted.hasNonNull("server_pattern")) {  // evaluated by the broker (KIP-848)
                consumer.subscribe(new SubscriptionPattern(wanted.get("server_pattern").asText()), this);
            } else {
                List<String> topics = new ArrayList<>();
                wanted.get("topics").forEach(one -> topics.add(one.asText()));
                consumer.subscribe(topics, this);
            }
        }

        private void obey(JsonNode command) {
            switch (command.get("do").asText()) {
                case "close" -> {
                    closing = true;
                    membership = GroupMembershipOperation.valueOf(command.path("membership").asText("DEFAULT"));
                }
                case "pause" -> pause();
                case "resume" -> { }
                case "subscribe" -> subscribe(command);
                case "where" -> {
                    ConsumerGroupMetadata now = consumer.groupMetadata();
                    tell(getName(), "where", Map.of("generation", now.generationId(), "member_id", now.memberId()));
                }
                default -> throw new IllegalArgumentException(command.toString());
            }
        }

        /** Does nothing, not even poll, until the next command. */
        private void pause() {
            try {
                obey(commands.take());
            } catch (InterruptedException never) {
                throw new IllegalStateException(never);
            }
        }

        private void read(ConsumerRecords<byte[], byte[]> records) {
            for (TopicPartition where : records.partitions()) {
                List<Long> offsets = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : records.records(where)) {
                    offsets.add(record.offset());
                }
                uncommitted.put(where, new OffsetAndMetadata(offsets.get(offsets.size() - 1) + 1));
                tell(getName(), "records",
                    Map.of("topic", where.topic(), "partition", where.partition(), "offsets", offsets));
            }
            if (uncommitted.isEmpty()) {
                return;
            }
            try {
                consumer.commitSync(Map.copyOf(uncommitted));
                List<List<Object>> told = new ArrayList<>();
                uncommitted.forEach((where, one) -> told.add(List.of(where.topic(), where.partition(), one.offset())));
                uncommitted.clear();
                tell(getName(), "committed", Map.of("offsets", told));
            } catch (CommitFailedException | RebalanceInProgressException | TimeoutException refused) {
                tell(getName(), "commit_failed", Map.of("name", refused.getClass().getSimpleName()));
            }
        }

        private void close() {
            try {
                if (consumer != null) {
                    consumer.close(CloseOptions.timeout(Duration.ofSeconds(5))
                        .withGroupMembershipOperation(membership));
                }
            } catch (KafkaException thrown) {
                tell(getName(), "warning", Map.of("name", thrown.getClass().getSimpleName()));
            }
            tell(getName(), "closed", Map.of());
        }

        private void partitions(String event, Collection<TopicPartition> partitions) {
            ArrayNode rows = JSON.createArrayNode();
            partitions.forEach(one -> rows.addArray().add(one.topic()).add(one.partition()));
            ConsumerGroupMetadata now = consumer.groupMetadata();
            tell(getName(), event, Map.of("partitions", rows, "generation", now.generationId()));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            uncommitted.keySet().removeAll(partitions);
            partitions("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            uncommitted.keySet().removeAll(partitions);
            partitions("lost", partitions);
        }
    }
}
