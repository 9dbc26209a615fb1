// Reads lines of hex (UTF-16) that each hold a JAAS entry; prints the options of each as Kafka reads them, in hex, sorted.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.JaasContext;

class JaasOptions {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String text = new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_16BE);
            JaasContext context = JaasContext.loadServerContext(
                new ListenerName("L"), "PLAIN", Map.of("plain.sasl.jaas.config", new Password(text)));
            List<String> found = new ArrayList<>();
            for (Map.Entry<String, ?> option : context.configurationEntries().get(0).getOptions().entrySet())
                found.add(HexFormat.of().formatHex((option.getKey() + "=" + option.getValue()).getBytes(StandardCharsets.UTF_16BE)));
            Collections.sort(found);
            System.out.println(String.join(" ", found));
        }
    }
}
