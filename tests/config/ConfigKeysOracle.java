// Every key of Kafka's configurations, also those that are internal, which neither the documentation nor DescribeConfigs
// shows: the other side of test_every_key.py. A line for each, with tabs between:
//   broker | topic | group  name  type  default  importance  internal (true, false)  update mode  broker's key
// null stands for no default. Update modes are those of DynamicBrokerConfig, "read-only" where it has none.

import java.util.Map;
import java.util.Optional;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigKeysOracle {
    public static void main(String[] arguments) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : AbstractKafkaConfig.CONFIG_DEF.configKeys().values())
            print("broker", key, modes.getOrDefault(key.name, "read-only"), null);
        for (ConfigDef.ConfigKey key : LogConfig.configKeys().values())
            print("topic", key, "", ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS.get(key.name));
        for (ConfigDef.ConfigKey key : GroupConfig.CONFIG_DEF.configKeys().values())
            print("group", key, "", GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.getOrDefault(key.name, Optional.empty()).orElse(null));
    }

    private static void print(String kind, ConfigDef.ConfigKey key, String mode, String synonym) {
        Object value = ConfigDef.NO_DEFAULT_VALUE.equals(key.defaultValue) ? "(required)"
            : ConfigDef.convertToString(key.defaultValue, key.type);
        System.out.println(String.join("\t", kind, key.name, key.type.toString(), String.valueOf(value),
            key.importance.toString(), String.valueOf(key.internalConfig), mode, String.valueOf(synonym)));
    }
}
