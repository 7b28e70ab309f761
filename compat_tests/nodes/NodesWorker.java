import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's consumer of one partition, or its idempotent producer, until it is killed.
 *
 * <p>read TOPIC key=value... prints "record OFFSET EPOCH VALUE" for each record, and "truncated OFFSET" where it is told
 * (KIP-320) that the records from there on are gone, and reads on there; "replica NODE" when it fetches from
 * another follower, or from the leader (-1). write TOPIC key=value... sends a line of its
 * standard input as one record, and prints "acknowledged VALUE" or "failed ERROR"; it ends at the input's end.
 */
public final class NodesWorker {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        for (int index = 2; index < arguments.length; index++) {
            String[] pair = arguments[index].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        if (arguments[0].equals("read")) {
            read(new TopicPartition(arguments[1], 0), properties);
        } else {
            write(arguments[1], properties);
        }
    }

    private static void read(TopicPartition partition, Properties properties) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            Object replica = null;
            while (true) {
                Object now = replica(consumer);
                if (!now.equals(replica)) {
                    say("replica " + now);
                    replica = now;
                }
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        String value = new String(record.value());
                        say("record " + record.offset() + " " + record.leaderEpoch().orElse(-1) + " " + value);
                    }
                } catch (LogTruncationException error) {
                    long offset = error.divergentOffsets().get(partition).offset();
                    say("truncated " + offset);
                    consumer.seek(partition, offset);
                }
            }
        }
    }

    /** The follower that the leader has sent it to, or -1. */
    private static Object replica(KafkaConsumer<?, ?> consumer) {
        for (Map.Entry<MetricName, ? extends Metric> metric : consumer.metrics().entrySet()) {
            if (metric.getKey().name().equals("preferred-read-replica")) {
                return metric.getValue().metricValue();
            }
        }
        return -1;
    }

    private static void write(String topic, Properties properties) throws Exception {
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            java.io.BufferedReader input = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String value = line;
                producer.send(new ProducerRecord<>(topic, 0, null, value.getBytes()), (where, error) ->
                    say(error == null ? "acknowledged " + value : "failed " + error));
            }
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
