import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/** Right: a Kafka Streams application with processing.guarantee=exactly_once_v2. The argument is its state directory. */
public class StreamsExactlyOnce {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "billing");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("KAFKA_BOOTSTRAP_SERVERS"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[0]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "50");  // shortens a trial
        settings.put(StreamsConfig.POLL_MS_CONFIG, "20");  // shortens a trial
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");  // shortens a trial
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "100");  // shortens a trial
        settings.put(StreamsConfig.consumerPrefix("fetch.max.wait.ms"), "100");  // shortens a trial
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), "4");  // shortens a trial
        settings.put(StreamsConfig.RECONNECT_BACKOFF_MS_CONFIG, "10");  // shortens a trial
        settings.put(StreamsConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, "50");  // shortens a trial
        settings.put(StreamsConfig.RETRY_BACKOFF_MS_CONFIG, "20");  // shortens a trial
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("orders", Consumed.with(Serdes.String(), Serdes.String()))
            .mapValues(order -> "paid: " + order)
            .to("receipts", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> StreamThreadExceptionResponse.REPLACE_THREAD);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
        streams.start();
    }
}
