// The Java producer and consumer of 0.9 and newer; tests/clients/driver.py describes the protocol.
//
// What differs between the versions of the library at compile time is in Era, one for each directory below ../eras.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.AbstractMap.SimpleEntry;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long TIMEOUT_MS = 30_000;

    private static KafkaConsumer<byte[], byte[]> member;
    private static final List<List<Integer>> REVOKED = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", answer(JSON.readTree(line)));
            } catch (Throwable error) {
                answer.put("error", error + (error.getCause() == null ? "" : ", for " + error.getCause()));
            }
            out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    private static JsonNode answer(JsonNode question) throws Exception {
        switch (question.get("do").asText()) {
            case "hello": return hello();
            case "produce": return produce(question);
            case "consume": return consume(question);
            case "offset_for_time": return offsetForTime(question);
            case "open": return open(question);
            case "poll": return poll(question);
            case "commit": member.commitSync(); return null;
            case "close": member.close(); return null;
            default: return Era.answer(question, member);
        }
    }

    private static JsonNode hello() throws Exception {
        Properties library = new Properties();
        library.load(KafkaConsumer.class.getResourceAsStream("/kafka/kafka-version.properties"));
        ObjectNode answer = JSON.createObjectNode();
        answer.put("version", library.getProperty("version"));
        ArrayNode codecs = answer.putArray("codecs");
        for (String codec : Era.CODECS) {
            codecs.add(codec);
        }
        answer.set("protocols", JSON.valueToTree(Era.protocols()));
        ObjectNode cannot = answer.putObject("cannot");
        Era.CANNOT.forEach(cannot::put);
        return answer;
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }

    static Map<String, Object> config(JsonNode question, String... defaults) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", question.get("address").asText());
        for (int at = 0; at < defaults.length; at += 2) {
            config.put(defaults[at], defaults[at + 1]);
        }
        if (question.has("config")) {
            question.get("config").fields().forEachRemaining(one -> config.put(one.getKey(), one.getValue().asText()));
        }
        return config;
    }

    private static JsonNode produce(JsonNode question) throws Exception {
        Map<String, Object> config = config(question, "linger.ms", "5", "max.request.size", String.valueOf(4 << 20));
        try (KafkaProducer<byte[], byte[]> producer = producer(config)) {
            return send(producer, question);
        }
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, Object> config) {
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static JsonNode send(KafkaProducer<byte[], byte[]> producer, JsonNode question) throws Exception {
        String topic = question.get("topic").asText();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : question.get("records")) {
            List<Map.Entry<String, byte[]>> headers = new ArrayList<>();
            for (JsonNode header : record.get(4)) {
                headers.add(new SimpleEntry<>(header.get(0).asText(), bytes(header.get(1))));
            }
            Long timestamp = record.get(1).isNull() ? null : record.get(1).asLong();
            sent.add(producer.send(Era.record(
                topic, record.get(0).asInt(), timestamp, bytes(record.get(2)), bytes(record.get(3)), headers)));
        }
        ArrayNode answer = JSON.createArrayNode();
        for (Future<RecordMetadata> future : sent) {
            answer.add(future.get().offset());
        }
        return answer;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> config) {
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static JsonNode consume(JsonNode question) throws Exception {
        String topic = question.get("topic").asText();
        Map<TopicPartition, Long> ends = new HashMap<>();
        question.get("ends").fields().forEachRemaining(
            one -> ends.put(new TopicPartition(topic, Integer.parseInt(one.getKey())), one.getValue().asLong()));
        ArrayNode answer = JSON.createArrayNode();
        long until = System.nanoTime() + TIMEOUT_MS * 1_000_000;
        Map<String, Object> config = config(question, "fetch.max.wait.ms", "20", "enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(config)) {
            consumer.assign(new ArrayList<>(ends.keySet()));
            for (TopicPartition partition : ends.keySet()) {
                consumer.seek(partition, question.get("starts").get("" + partition.partition()).asLong());
            }
            while (ends.entrySet().stream().anyMatch(one -> consumer.position(one.getKey()) < one.getValue())) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException("timed out after " + answer.size() + " records");
                }
                for (ConsumerRecord<byte[], byte[]> record : Era.poll(consumer, 100)) {
                    add(answer, record);
                }
            }
        }
        return answer;
    }

    private static void add(ArrayNode answer, ConsumerRecord<byte[], byte[]> record) {
        ArrayNode row = answer.addArray();
        row.add(record.partition()).add(record.offset()).add(Era.timestamp(record)).add(record.key()).add(record.value());
        ArrayNode headers = row.addArray();
        for (Map.Entry<String, byte[]> header : Era.headers(record)) {
            headers.addArray().add(header.getKey()).add(header.getValue());
        }
    }

    private static JsonNode offsetForTime(JsonNode question) {
        TopicPartition partition = new TopicPartition(question.get("topic").asText(), question.get("partition").asInt());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(config(question, "enable.auto.commit", "false"))) {
            Long offset = Era.offsetForTime(consumer, partition, question.get("timestamp").asLong());
            return JSON.getNodeFactory().numberNode(offset);
        }
    }

    private static JsonNode open(JsonNode question) {
        Map<String, Object> config = config(question, "group.id", question.get("group").asText(),
            "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        if (!config.containsKey("group.protocol")) {
            config.put("session.timeout.ms", "6000");
            config.put("heartbeat.interval.ms", "200");
        }
        member = consumer(config);
        member.subscribe(Arrays.asList(question.get("topic").asText()), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                List<Integer> revoked = new ArrayList<>();
                partitions.forEach(partition -> revoked.add(partition.partition()));
                REVOKED.add(revoked);
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            }
        });
        return null;
    }

    private static JsonNode poll(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode rows = answer.putArray("rows");
        for (ConsumerRecord<byte[], byte[]> record : Era.poll(member, question.get("timeout_ms").asLong())) {
            add(rows, record);
        }
        answer.set("revoked", JSON.valueToTree(REVOKED));
        REVOKED.clear();
        ArrayNode assigned = answer.putArray("assigned");
        member.assignment().forEach(partition -> assigned.add(partition.partition()));
        return answer;
    }
}
