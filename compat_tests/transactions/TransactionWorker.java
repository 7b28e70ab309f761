import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Transactional producers of the Java client. Each line of standard input is a command, answered by one line: "ok" and a
 * result, or "error", the exception's class and its text.
 *
 *   new NAME key=value ...            a producer
 *   init | begin | commit | abort | flush | close NAME
 *   send NAME TOPIC PARTITION VALUE   answered with the offset
 *   offsets NAME GROUP TOPIC PARTITION OFFSET
 *   tool MAIN-CLASS ARGUMENT ...      one of Kafka's; answered with its exit code and, in base64, what it wrote
 *   transform BOOTSTRAP IN OUT GROUP ID   consume, transform, produce, until killed; answered when it has begun
 */
public class TransactionWorker {
    private static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();

    private static Integer exitCode;

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            exitCode = exitCode == null ? code : exitCode;
            throw new IllegalStateException("exit");
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok " + obey(line.split(" "));
            } catch (ExecutionException error) {
                answer = failed(error.getCause());
            } catch (Exception error) {
                answer = failed(error);
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    private static String failed(Throwable error) {
        return "error " + error.getClass().getSimpleName() + " " + String.valueOf(error.getMessage()).replace('\n', ' ');
    }

    private static String obey(String[] words) throws Exception {
        if (words[0].equals("transform")) {
            Thread thread = new Thread(() -> transform(words[1], words[2], words[3], words[4], words[5]));
            thread.setDaemon(true);
            thread.start();
            return "";
        }
        if (words[0].equals("tool")) {
            return tool(words[1], Arrays.copyOfRange(words, 2, words.length));
        }
        if (words[0].equals("new")) {
            Properties properties = new Properties();
            for (int i = 2; i < words.length; i++) {
                String[] pair = words[i].split("=", 2);
                properties.put(pair[0], pair[1]);
            }
            producers.put(words[1], new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer()));
            return "";
        }
        KafkaProducer<String, String> producer = producers.get(words[1]);
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "flush" -> producer.flush();
            case "close" -> producer.close(Duration.ofSeconds(5));
            case "send" -> {
                ProducerRecord<String, String> sent =
                    new ProducerRecord<>(words[2], Integer.parseInt(words[3]), null, words[4]);
                return String.valueOf(producer.send(sent).get().offset());
            }
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(words[3], Integer.parseInt(words[4])),
                       new OffsetAndMetadata(Long.parseLong(words[5]))),
                new ConsumerGroupMetadata(words[2], -1, "", java.util.Optional.empty()));
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    private static String tool(String main, String[] arguments) throws Exception {
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        PrintStream out = System.out;
        exitCode = null;
        System.setOut(new PrintStream(written, true, StandardCharsets.UTF_8));
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ReflectiveOperationException thrown) {
            if (exitCode == null) {
                throw thrown;
            }
        } finally {
            System.setOut(out);
        }
        return (exitCode == null ? 0 : exitCode) + ":" + Base64.getEncoder().encodeToString(written.toByteArray());
    }

    private static void transform(String bootstrap, String from, String to, String group, String id) {
        while (true) {
            try {
                transformOnce(bootstrap, from, to, group, id);
            } catch (KafkaException error) {
                System.err.println("again: " + error);
            }
        }
    }

    private static void transformOnce(String bootstrap, String from, String to, String group, String id) {
        Properties reading = new Properties();
        reading.put("bootstrap.servers", bootstrap);
        reading.put("group.id", group);
        reading.put("isolation.level", "read_committed");
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("session.timeout.ms", "2000");
        reading.put("heartbeat.interval.ms", "500");
        reading.put("max.poll.records", "7");
        Properties writing = new Properties();
        writing.put("bootstrap.servers", bootstrap);
        writing.put("transactional.id", id);
        writing.put("transaction.timeout.ms", "5000");
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
             KafkaProducer<String, String> producer =
                 new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(from));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<String, String> record : records) {
                        producer.send(new ProducerRecord<>(to, record.partition(), null, record.value()));
                        offsets.put(new TopicPartition(record.topic(), record.partition()),
                                    new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                } catch (ProducerFencedException | AuthorizationException | FencedInstanceIdException error) {
                    throw error;
                } catch (KafkaException error) {
                    producer.abortTransaction();
                    throw error;
                }
            }
        }
    }
}
