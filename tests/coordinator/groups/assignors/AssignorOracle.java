// Kafka's own assignors: the other side of test_kafkas_assignors.py.
//
// Reads groups from standard input, a line each:
//   group <assignor> <HOMOGENEOUS or HETEROGENEOUS>
//   topic <high half of its id> <low half> <partitions>
//   member <id> <instance id or -> <numbers of the topics it reads, by comma> <topic:partition,... that it has>
//   end
// (- stands for nothing) and prints for every group a line per member, in their order: its partitions, sorted.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

public class AssignorOracle {
    static final Map<String, PartitionAssignor> ASSIGNORS =
        Map.of("range", new RangeAssignor(), "uniform", new UniformAssignor(), "simple", new SimpleAssignor());

    static class Topics implements SubscribedTopicDescriber {
        final List<Uuid> ids = new ArrayList<>();
        final Map<Uuid, Integer> partitions = new HashMap<>();

        public int numPartitions(Uuid topicId) {
            return partitions.getOrDefault(topicId, -1);
        }

        public Set<String> racksForPartition(Uuid topicId, int partition) {
            return Set.of();
        }
    }

    static Set<Uuid> read(Topics topics, String numbers) {
        Set<Uuid> found = new LinkedHashSet<>();
        if (!numbers.equals("-"))
            for (String number : numbers.split(","))
                found.add(topics.ids.get(Integer.parseInt(number)));
        return found;
    }

    static Map<Uuid, Set<Integer>> has(Topics topics, String rows) {
        Map<Uuid, Set<Integer>> found = new HashMap<>();
        if (!rows.equals("-"))
            for (String row : rows.split(",")) {
                String[] parts = row.split(":");
                found.computeIfAbsent(topics.ids.get(Integer.parseInt(parts[0])), __ -> new HashSet<>())
                    .add(Integer.parseInt(parts[1]));
            }
        return Collections.unmodifiableMap(found);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        PartitionAssignor assignor = null;
        SubscriptionType type = null;
        Topics topics = null;
        Map<String, MemberSubscriptionAndAssignmentImpl> members = null;
        Map<Uuid, Map<Integer, String>> owners = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "group" -> {
                    assignor = ASSIGNORS.get(words[1]);
                    type = SubscriptionType.valueOf(words[2]);
                    topics = new Topics();
                    members = new LinkedHashMap<>();
                    owners = new HashMap<>();
                }
                case "topic" -> {
                    Uuid id = new Uuid(Long.parseLong(words[1]), Long.parseLong(words[2]));
                    topics.ids.add(id);
                    topics.partitions.put(id, Integer.parseInt(words[3]));
                }
                case "member" -> {
                    Map<Uuid, Set<Integer>> has = has(topics, words[4]);
                    for (Map.Entry<Uuid, Set<Integer>> row : has.entrySet())
                        for (int partition : row.getValue())
                            owners.computeIfAbsent(row.getKey(), __ -> new HashMap<>()).put(partition, words[1]);
                    members.put(words[1], new MemberSubscriptionAndAssignmentImpl(
                        Optional.empty(),
                        words[2].equals("-") ? Optional.empty() : Optional.of(words[2]),
                        read(topics, words[3]),
                        new Assignment(has)));
                }
                case "end" -> {
                    GroupAssignment made = assignor.assign(new GroupSpecImpl(members, type, owners), topics);
                    for (String id : members.keySet()) {
                        List<String> rows = new ArrayList<>();
                        if (made.members().containsKey(id))
                            for (int number = 0; number < topics.ids.size(); number++)
                                for (int partition : new TreeSet<>(made.members().get(id).partitions()
                                        .getOrDefault(topics.ids.get(number), Set.of())))
                                    rows.add(number + ":" + partition);
                        output.append(rows.isEmpty() ? "-" : String.join(",", rows)).append('\n');
                    }
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.print(output);
    }
}
