// Kafka's StripedReplicaPlacer: the other side of test_stripes.py.
//
// Each line of standard input is a seed, a number of partitions, a replication factor and brokers as id:rack:fenced, the
// rack "-" for none. Its result is a line with the replicas of each partition, or "refused" and the message.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.stream.Collectors;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;

public class PlacerOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            List<UsableBroker> brokers = new ArrayList<>();
            for (int i = 3; i < words.length; i++) {
                String[] one = words[i].split(":");
                brokers.add(new UsableBroker(
                    Integer.parseInt(one[0]),
                    one[1].equals("-") ? Optional.empty() : Optional.of(one[1]),
                    one[2].equals("1")));
            }
            ClusterDescriber cluster = new ClusterDescriber() {
                public Iterator<UsableBroker> usableBrokers() {
                    return brokers.iterator();
                }

                public Uuid defaultDir(int brokerId) {
                    return Uuid.ZERO_UUID;
                }
            };
            PlacementSpec wanted = new PlacementSpec(0, Integer.parseInt(words[1]), Short.parseShort(words[2]));
            try {
                System.out.println(new StripedReplicaPlacer(new Random(Long.parseLong(words[0]))).place(wanted, cluster)
                    .assignments().stream()
                    .map(one -> one.replicas().stream().map(String::valueOf).collect(Collectors.joining(",")))
                    .collect(Collectors.joining(" ")));
            } catch (InvalidReplicationFactorException refused) {
                System.out.println("refused " + refused.getMessage());
            }
        }
    }
}
