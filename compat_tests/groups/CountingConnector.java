import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** A source for Kafka Connect: each task counts up in a partition of its own, and goes on where its stored offset says. */
public final class CountingConnector extends SourceConnector {
    private Map<String, String> settings;

    @Override
    public String version() {
        return "1";
    }

    @Override
    public void start(Map<String, String> given) {
        settings = given;
    }

    @Override
    public void stop() {
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Counter.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        List<Map<String, String>> tasks = new ArrayList<>();
        for (int number = 0; number < most; number++) {
            tasks.add(Map.of("topic", settings.get("topic"), "number", String.valueOf(number)));
        }
        return tasks;
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef().define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "where to");
    }

    /** One task: ten records at a time, twenty times a second. */
    public static final class Counter extends SourceTask {
        private String topic;
        private int number;
        private long next;

        @Override
        public String version() {
            return "1";
        }

        @Override
        public void start(Map<String, String> given) {
            topic = given.get("topic");
            number = Integer.parseInt(given.get("number"));
            Map<String, Object> stored = context.offsetStorageReader().offset(Map.of("number", number));
            next = stored == null ? 0 : (Long) stored.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(50);
            List<SourceRecord> records = new ArrayList<>();
            for (int count = 0; count < 10; count++) {
                next++;
                records.add(new SourceRecord(Map.of("number", number), Map.of("next", next), topic, number,
                    Schema.STRING_SCHEMA, String.valueOf(next - 1)));
            }
            return records;
        }

        @Override
        public void stop() {
        }
    }
}
