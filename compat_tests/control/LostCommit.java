import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Commits two transactions; the second commit's response is lost. Arguments: bootstrap servers, control API. */
public final class LostCommit {
    static final HttpClient HTTP = HttpClient.newHttpClient();
    static String control;

    static String ask(String method, String path, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create("http://" + control + path))
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .build();
        var response = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() >= 400) {
            throw new IllegalStateException(response.body());
        }
        return response.body();
    }

    public static void main(String[] arguments) throws Exception {
        control = arguments[1];
        ask("POST", "/topics", """
            {"orders": {"partitions": 1, "config": {"retention.ms": 86400000}}}""");
        ask("POST", "/faults", """
            {"on": "EndTxn", "transactional_id": "app", "nth": 2, "drop_response": "close"}""");

        Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "transactional.id", "app");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (var value : new String[] {"first", "second"}) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("orders", value));
                try {
                    producer.commitTransaction();
                    System.out.println("committed " + value);
                } catch (Exception error) {
                    System.out.println("failed " + value + " " + error);
                }
            }
        }
        System.out.println("rules " + ask("GET", "/faults", ""));
        System.out.println("requests " + ask("GET", "/requests?api=EndTxn", ""));
        System.out.println("records " + ask("GET", "/topics/orders/records?isolation=read_committed", ""));
        System.out.println("moved " + ask("POST", "/clock/advance", "{\"days\": 7}"));
        System.out.println("left " + ask("GET", "/topics/orders/records?isolation=read_committed", ""));
    }
}
