// Kafka's own Cleaner, run once on a partition directory: the other side of test_cleaner_kafka.py.
//
// Arguments: the directory (left by a clean stop), the first dirty offset, the first offset that must not be
// cleaned, the wall time in milliseconds, the bytes of the key map, and the topic's settings as key=value. Prints
// the offset up to which the log is clean then.

import java.io.File;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class CleanerOracle {
    static Time at(long now) {
        return (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, arguments) -> {
                if (method.getName().equals("milliseconds"))
                    return now;
                try {
                    return method.invoke(Time.SYSTEM, arguments);
                } catch (InvocationTargetException thrown) {
                    throw thrown.getCause();
                }
            });
    }

    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        long firstDirty = Long.parseLong(arguments[1]);
        long firstUncleanable = Long.parseLong(arguments[2]);
        long now = Long.parseLong(arguments[3]);
        int memory = Integer.parseInt(arguments[4]);
        Map<String, String> settings = new HashMap<>();
        for (String setting : Arrays.asList(arguments).subList(5, arguments.length)) {
            int equals = setting.indexOf('=');
            settings.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
        Time time = at(now);
        KafkaScheduler scheduler = new KafkaScheduler(1, true);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.create(directory, new LogConfig(settings), 0L, 0L, scheduler,
            new BrokerTopicStats(), time, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(memory), 65_536, 10_485_760, 0.9,
            new Throttler(Double.MAX_VALUE, 1000, "cleaner", "bytes", time), time, partition -> { });
        long end = cleaner.doClean(new LogToClean(log, firstDirty, firstUncleanable, false), now).getKey();
        log.close();
        scheduler.shutdown();
        System.out.println(end);
    }
}
