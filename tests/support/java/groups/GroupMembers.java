// Java consumers in groups behind stdin and stdout: a JSON question and a JSON answer a line.
//
//   {"do": "open", "member": name, "config": {...}, "topic": t}
//   {"do": "poll", "member": name, "timeout_ms": n} -> {"ok": {"records": [[partition, offset, value], ..],
//                                                              "assigned": [partition, ..]}}
//   {"do": "commit", "member": name}    {"do": "close", "member": name}
//
// Several members live here at once; each is polled in turn. What fails is answered {"error": exception}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class GroupMembers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, KafkaConsumer<String, String>> MEMBERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", answer(JSON.readTree(line)));
            } catch (Throwable error) {
                answer.put("error", error.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static ObjectNode answer(JsonNode question) {
        String name = question.get("member").asText();
        ObjectNode answer = JSON.createObjectNode();
        switch (question.get("do").asText()) {
            case "open" -> {
                Map<String, Object> config = new HashMap<>();
                question.get("config").fields()
                    .forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
                KafkaConsumer<String, String> made =
                    new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
                made.subscribe(List.of(question.get("topic").asText()));
                MEMBERS.put(name, made);
            }
            case "poll" -> {
                KafkaConsumer<String, String> member = MEMBERS.get(name);
                ArrayNode records = answer.putArray("records");
                for (ConsumerRecord<String, String> record :
                        member.poll(Duration.ofMillis(question.get("timeout_ms").asLong()))) {
                    records.addArray().add(record.partition()).add(record.offset()).add(record.value());
                }
                ArrayNode assigned = answer.putArray("assigned");
                for (TopicPartition partition : member.assignment()) {
                    assigned.add(partition.partition());
                }
            }
            case "commit" -> MEMBERS.get(name).commitSync();
            default -> MEMBERS.remove(name).close();
        }
        return answer;
    }
}
