// Prints Apache Kafka's own config definitions, one line each, and reads values with them.
//
// Without input: kind, name, type, default, limits, importance, internal, update mode, synonyms; separated by tabs.
// Each line of input is kind, name, text; its answer is "ok" and the text Kafka would show for the value, or "bad".
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class KafkaDefinitions {
    public static void main(String[] arguments) throws Exception {
        Map<String, ConfigDef.ConfigKey> broker = AbstractKafkaConfig.CONFIG_DEF.configKeys();
        Map<String, ConfigDef.ConfigKey> topic = LogConfig.configKeys();
        if (arguments.length == 0) {
            Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
            for (ConfigDef.ConfigKey key : new TreeMap<>(broker).values())
                print("broker", key, modes.getOrDefault(key.name, "read-only"), "");
            for (ConfigDef.ConfigKey key : new TreeMap<>(topic).values())
                print("topic", key, "", synonyms(key.name));
            return;
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t", -1);
            ConfigDef.ConfigKey key = (parts[0].equals("broker") ? broker : topic).get(parts[1]);
            System.out.println(answer(key, parts[2]));
        }
    }

    static String answer(ConfigDef.ConfigKey key, String text) {
        try {
            Object value = ConfigDef.parseType(key.name, text, key.type);
            if (key.validator != null)
                key.validator.ensureValid(key.name, value);
            String shown = key.type == ConfigDef.Type.PASSWORD ? text : ConfigDef.convertToString(value, key.type);
            return "ok\t" + shown;
        } catch (RuntimeException refused) {
            return "bad";
        }
    }

    static void print(String kind, ConfigDef.ConfigKey key, String mode, String synonyms) {
        String preset = !key.hasDefault() ? "<none>"
            : key.defaultValue == null ? "<null>" : ConfigDef.convertToString(key.defaultValue, key.type);
        System.out.println(String.join("\t", kind, key.name, key.type.toString(), preset,
            key.validator == null ? "" : key.validator.toString(), key.importance.toString().toLowerCase(),
            Boolean.toString(key.internalConfig), mode, synonyms));
    }

    // name=factor,...: the factor is what the converter makes of 1, as a number of the topic key's unit
    static String synonyms(String name) {
        var found = ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.get(name);
        return found == null ? "" : found.stream()
            .map(synonym -> synonym.name() + "=" + synonym.converter().apply("1"))
            .collect(Collectors.joining(","));
    }
}
