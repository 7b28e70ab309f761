// Takes cases from standard input, a JSON object a line, and prints for each what the Java client said. The "settings" of
// a case are the client's own. A case that is kept is one record, sent by a producer that lasts for all such cases of its
// topic; what is said is how many connections that producer has opened.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class LoggedInClient {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, KafkaProducer<String, String>> KEPT = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = JSON.readTree(line);
            new Thread(() -> answer(asked)).start();
        }
    }

    static void answer(JsonNode asked) {
        Map<String, String> said = new HashMap<>();
        said.put("id", asked.get("id").asText());
        try {
            said.put("value", asked.has("kept") ? send(asked) : run(asked));
        } catch (Throwable error) {
            if (error instanceof ExecutionException) error = error.getCause();
            said.put("error", error.getClass().getSimpleName());
            said.put("said", String.valueOf(error.getMessage()));
        }
        try {
            String line = JSON.writeValueAsString(said);
            synchronized (JSON) { System.out.println(line); }
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    static Properties settings(JsonNode asked) {
        Properties settings = new Properties();
        asked.get("settings").fields().forEachRemaining(row -> settings.put(row.getKey(), row.getValue().asText()));
        return settings;
    }

    static String send(JsonNode asked) throws Exception {
        String topic = asked.get("topic").asText();
        var producer = KEPT.computeIfAbsent(
            topic, unused -> new KafkaProducer<>(settings(asked), new StringSerializer(), new StringSerializer()));
        producer.send(new ProducerRecord<>(topic, asked.get("value").asText())).get();
        for (var metric : producer.metrics().values()) {
            if (metric.metricName().name().equals("connection-creation-total")
                && metric.metricName().group().equals("producer-metrics")) {
                return String.valueOf(((Double) metric.metricValue()).longValue());
            }
        }
        throw new IllegalStateException("no metric");
    }

    static String run(JsonNode asked) throws Exception {
        Properties settings = settings(asked);
        String timeout = asked.get("timeout_ms").asText();
        settings.put("default.api.timeout.ms", timeout);
        settings.put("request.timeout.ms", timeout);
        settings.put("max.block.ms", timeout);
        try (Admin admin = Admin.create(settings)) {
            admin.listTopics().names().get();
        }
        settings.put("transactional.id", asked.get("topic").asText());
        String topic = asked.get("topic").asText();
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, asked.get("value").asText()));
            producer.commitTransaction();
        }
        settings.remove("transactional.id");
        settings.put("group.id", topic);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.currentTimeMillis() + asked.get("timeout_ms").asLong();
            while (System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    consumer.commitSync();
                    return record.value();
                }
            }
        }
        throw new IllegalStateException("no record");
    }
}
