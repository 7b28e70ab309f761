import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Right: orders are read, and receipts and offsets written, in one transaction; with Java's clients. */
public class JavaTransactions {
    public static void main(String[] arguments) {
        Properties reading = settings();
        reading.put("group.id", "billing");
        reading.put("isolation.level", "read_committed");
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("max.poll.records", "4");  // shortens a trial
        reading.put("session.timeout.ms", "6000");  // shortens a trial
        reading.put("heartbeat.interval.ms", "100");  // shortens a trial
        reading.put("fetch.max.wait.ms", "100");  // shortens a trial
        Properties writing = settings();
        writing.put("transactional.id", "billing-" + System.getenv("ONCELOG_PROVE_INSTANCE"));
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
        try (consumer; producer) {
            producer.initTransactions();
            consumer.subscribe(List.of("orders"));
            while (true) {
                ConsumerRecords<String, String> orders = consumer.poll(Duration.ofMillis(100));
                if (orders.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                try {
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<String, String> order : orders) {
                        producer.send(new ProducerRecord<>("receipts", order.key(), "paid: " + order.value()));
                        offsets.put(new TopicPartition(order.topic(), order.partition()),
                            new OffsetAndMetadata(order.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                } catch (KafkaException error) {
                    producer.abortTransaction();  // throws again what only a new producer can recover from
                    rewind(consumer);
                }
            }
        } catch (WakeupException stopped) {
            // asked to stop
        }
    }

    private static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata next = committed.get(partition);
            consumer.seek(partition, next == null ? 0 : next.offset());
        }
    }

    private static Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP_SERVERS"));
        settings.put("reconnect.backoff.ms", "10");  // shortens a trial
        settings.put("reconnect.backoff.max.ms", "50");  // shortens a trial
        settings.put("retry.backoff.ms", "20");  // shortens a trial
        settings.put("retry.backoff.max.ms", "50");  // shortens a trial
        return settings;
    }
}
