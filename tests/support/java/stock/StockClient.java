// The Java producer and consumer behind stdin and stdout: a JSON question and a JSON answer a line.
//
//   {"do": "produce", "config": {...}, "topic": t, "records": [[partition, timestamp, key, value, [[name, value], ..]], ..]}
//       -> {"ok": [[partition, offset, timestamp], ..]}             in the order of the records
//   {"do": "consume", "config": {...}, "topic": t, "ends": {"0": end offset, ..}, "timeout_ms": n}
//       -> {"ok": [[partition, offset, timestamp, timestamp type, key, value, [[name, value], ..]], ..]}
//
// Keys, values and header values are base64 or null, as is a timestamp that the producer shall choose. The consumer has
// no group: it is assigned to the partitions and reads from the beginning. What fails is answered {"error": exception}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class StockClient {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode question = JSON.readTree(line);
                answer.set("ok", question.get("do").asText().equals("produce") ? produce(question) : consume(question));
            } catch (Throwable error) {
                answer.put("error", error.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static Map<String, Object> config(JsonNode question) {
        Map<String, Object> config = new HashMap<>();
        question.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        return config;
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }

    private static ArrayNode produce(JsonNode question) throws Exception {
        String topic = question.get("topic").asText();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ArrayNode answer = JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config(question), new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : question.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.get(4)) {
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                }
                Long timestamp = record.get(1).isNull() ? null : record.get(1).asLong();
                sent.add(producer.send(new ProducerRecord<>(
                    topic, record.get(0).asInt(), timestamp, bytes(record.get(2)), bytes(record.get(3)), headers)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata metadata = future.get();
                answer.addArray().add(metadata.partition()).add(metadata.offset()).add(metadata.timestamp());
            }
        }
        return answer;
    }

    private static ArrayNode consume(JsonNode question) throws Exception {
        String topic = question.get("topic").asText();
        Map<TopicPartition, Long> ends = new HashMap<>();
        question.get("ends").fields().forEachRemaining(
            entry -> ends.put(new TopicPartition(topic, Integer.parseInt(entry.getKey())), entry.getValue().asLong()));
        ArrayNode answer = JSON.createArrayNode();
        long until = System.nanoTime() + question.get("timeout_ms").asLong() * 1_000_000;
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config(question), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(ends.keySet());
            consumer.seekToBeginning(ends.keySet());
            while (!isDone(consumer, ends)) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException("timed out after " + answer.size() + " records");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    add(answer, record);
                }
            }
        }
        return answer;
    }

    private static boolean isDone(KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, Long> ends) {
        return ends.entrySet().stream().allMatch(entry -> consumer.position(entry.getKey()) >= entry.getValue());
    }

    private static void add(ArrayNode answer, ConsumerRecord<byte[], byte[]> record) {
        ArrayNode row = answer.addArray();
        row.add(record.partition()).add(record.offset()).add(record.timestamp()).add(record.timestampType().toString());
        row.add(record.key()).add(record.value());
        ArrayNode headers = row.addArray();
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
    }
}
