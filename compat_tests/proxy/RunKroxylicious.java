import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Runs a Kroxylicious proxy until it is killed.
 *
 *   RunKroxylicious CONFIGURATION
 */
public class RunKroxylicious {
    public static void main(String[] arguments) throws Exception {
        ConfigParser parser = new ConfigParser();
        String yaml = Files.readString(Path.of(arguments[0]));
        try (KafkaProxy proxy = new KafkaProxy(parser, parser.parseConfiguration(yaml), Features.defaultFeatures())) {
            proxy.startup();
            System.out.println("started");
            proxy.block();
        }
    }
}
