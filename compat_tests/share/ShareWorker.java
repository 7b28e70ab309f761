import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A share consumer that reads and acknowledges at random until it is killed. Arguments: bootstrap servers, topic, group,
 * seed, acknowledgement mode, acquire mode. It writes events, one line of JSON each: at (ms), event (got, said), and
 * records: rows of partition, offset, and delivery count or acknowledgement type.
 */
public final class ShareWorker {
    private static final AcknowledgeType[] TYPES = {
        AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
    };

    public static void main(String[] arguments) {
        Random random = new Random(Long.parseLong(arguments[3]));
        boolean explicit = arguments[4].equals("explicit");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("share.acknowledgement.mode", arguments[4]);
        settings.put("share.acquire.mode", arguments[5]);
        settings.put("max.poll.records", Integer.toString(1 + random.nextInt(20)));
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[1]));
            boolean renews = explicit;
            while (true) {
                try {
                    if (round(consumer, random, explicit, renews)) {
                        renews = explicit && random.nextInt(8) == 0;
                    }
                } catch (KafkaException | IllegalStateException error) {
                    System.err.println(error);
                }
            }
        }
    }

    /** Whether there were records. */
    private static boolean round(
        KafkaShareConsumer<byte[], byte[]> consumer, Random random, boolean explicit, boolean renews
    ) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        if (records.isEmpty()) {
            return false;
        }
        write("got", records, null);
        if (!explicit) {
            commit(consumer, records, null);
            return true;
        }
        List<AcknowledgeType> types = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            int drawn = random.nextInt(100);
            types.add(renews ? AcknowledgeType.RENEW : TYPES[drawn < 80 ? 0 : drawn < 97 ? 1 : 2]);
            consumer.acknowledge(record, types.get(types.size() - 1));
        }
        commit(consumer, records, types);
        if (renews) {
            write("renewed", records, null);
        }
        return true;
    }

    private static void commit(
        KafkaShareConsumer<byte[], byte[]> consumer,
        List<ConsumerRecord<byte[], byte[]>> records,
        List<AcknowledgeType> types
    ) {
        Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync(Duration.ofSeconds(30));
        List<ConsumerRecord<byte[], byte[]>> done = new ArrayList<>();
        List<AcknowledgeType> said = new ArrayList<>();
        for (int at = 0; at < records.size(); at++) {
            ConsumerRecord<byte[], byte[]> record = records.get(at);
            boolean succeeded = results.entrySet().stream().anyMatch(
                one -> one.getKey().partition() == record.partition() && one.getValue().isEmpty());
            if (succeeded) {
                done.add(record);
                said.add(types == null ? AcknowledgeType.ACCEPT : types.get(at));
            }
        }
        write("said", done, said);
    }

    private static void write(
        String event, List<ConsumerRecord<byte[], byte[]>> records, List<AcknowledgeType> types
    ) {
        StringBuilder rows = new StringBuilder();
        for (int at = 0; at < records.size(); at++) {
            ConsumerRecord<byte[], byte[]> record = records.get(at);
            int last = types == null ? record.deliveryCount().orElse((short) 0) : types.get(at).id;
            rows.append(rows.isEmpty() ? "" : ",")
                .append("[" + record.partition() + "," + record.offset() + "," + last + "]");
        }
        System.out.println(
            "{\"at\":" + System.currentTimeMillis() + ",\"event\":\"" + event + "\",\"records\":[" + rows + "]}");
        System.out.flush();
    }
}
