import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/**
 * Kafka's own quota managers, on a clock that its input sets. Each line is one of
 *   new KIND SAMPLES WINDOW_S   (KIND: bytes, percent, mutations)
 *   quota USER CLIENT VALUE     (of a name: -: no such part, *: the default; VALUE -: removed)
 *   use MS USER CLIENT VALUE    prints the throttle time in ms; of mutations "strict PERMISSIVE" below
 *   permissive MS USER CLIENT VALUE
 */
public class QuotaOracle {
    static long now = 0;

    static final Time TIME = new Time() {
        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000;
        }

        public void sleep(long ms) {
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        }
    };

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        ClientQuotaManager manager = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("new")) {
                if (manager != null)
                    manager.initiateShutdown();
                manager = make(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            } else if (words[0].equals("quota")) {
                manager.updateQuota(user(words[1]), client(words[2]),
                    words[3].equals("-") ? Optional.empty() : Optional.of(new Quota(Double.parseDouble(words[3]), true)));
            } else {
                now = Long.parseLong(words[1]);
                Session session = new Session(new KafkaPrincipal("User", words[2]), InetAddress.getLoopbackAddress());
                double value = Double.parseDouble(words[4]);
                out.append(use(manager, words[0], session, words[3], value)).append('\n');
            }
        }
        System.out.print(out);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static ClientQuotaManager make(String kind, int samples, int windowS) {
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(samples, windowS);
        Metrics metrics = new Metrics(new MetricConfig(), new java.util.ArrayList<>(), TIME);
        if (kind.equals("percent"))
            return new org.apache.kafka.server.quota.ClientRequestQuotaManager(config, metrics, TIME, "", Optional.empty());
        if (kind.equals("mutations"))
            return new ControllerMutationQuotaManager(config, metrics, TIME, "", Optional.empty());
        return new ClientQuotaManager(config, metrics, QuotaType.PRODUCE, TIME, "");
    }

    static int use(ClientQuotaManager manager, String how, Session session, String client, double value) {
        if (!(manager instanceof ControllerMutationQuotaManager mutations))
            return manager.maybeRecordAndGetThrottleTimeMs(session, client, value, now);
        ControllerMutationQuota quota = how.equals("use")
            ? mutations.newStrictQuotaFor(session, client)
            : mutations.newPermissiveQuotaFor(session, client);
        try {
            quota.record(value);
        } catch (org.apache.kafka.common.errors.ThrottlingQuotaExceededException refused) {
            return -quota.throttleTime();
        }
        return quota.throttleTime();
    }

    static Optional<ClientQuotaEntity.ConfigEntity> user(String name) {
        if (name.equals("-"))
            return Optional.empty();
        return Optional.of(name.equals("*") ? ClientQuotaManager.DEFAULT_USER_ENTITY
            : new ClientQuotaManager.UserEntity(URLEncoder.encode(name, StandardCharsets.UTF_8)));
    }

    static Optional<ClientQuotaEntity.ConfigEntity> client(String name) {
        if (name.equals("-"))
            return Optional.empty();
        return Optional.of(name.equals("*") ? ClientQuotaManager.DEFAULT_USER_CLIENT_ID
            : new ClientQuotaManager.ClientIdEntity(name));
    }
}
