// The Java and Scala client of 0.8: its producers, sync and async, the new producer of 0.8.2, and SimpleConsumer.
//
// tests/clients/driver.py describes the protocol. Its consumer of groups asks ZooKeeper; what commits here is
// SimpleConsumer, to both stores of offsets (version 0 of the requests is ZooKeeper's, version 1 is Kafka's).

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Future;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetCommitResponse;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import kafka.producer.KeyedMessage;
import kafka.producer.Partitioner;
import kafka.producer.ProducerConfig;
import kafka.utils.VerifiableProperties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int TIMEOUT_MS = 30_000;
    private static final int FETCH_BYTES = 1 << 20;
    private static final short UNKNOWN_TOPIC_OR_PARTITION = 3;

    private static SimpleConsumer member;
    private static String group;
    private static String topic;
    private static final Map<Integer, Long> POSITIONS = new TreeMap<>();

    /** The partition is the key to choose it by. */
    public static class Chosen implements Partitioner {
        public Chosen(VerifiableProperties properties) {
        }

        @Override
        public int partition(Object key, int count) {
            return (Integer) key;
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
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
        System.exit(0);
    }

    private static JsonNode answer(JsonNode question) throws Exception {
        switch (question.get("do").asText()) {
            case "hello": return hello();
            case "produce": return produce(question);
            case "consume": return consume(question);
            case "open": return open(question);
            case "poll": return poll();
            case "commit": return commit();
            case "close": member.close(); return null;
            default: throw new IllegalArgumentException(question.toString());
        }
    }

    private static JsonNode hello() throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        String jar = SimpleConsumer.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        answer.put("version", jar.replaceAll(".*kafka_[0-9.]+-([0-9.]+)\\.jar", "$1"));
        answer.putArray("codecs").add("none").add("gzip").add("snappy").add("lz4");
        answer.putArray("producers").add("sync").add("async").add("new");
        ObjectNode cannot = answer.putObject("cannot");
        cannot.put("headers", "messages have headers since 0.11");
        cannot.put("timestamps", "messages have timestamps since 0.10");
        cannot.put("offset_for_time", "getOffsetsBefore knows segments, not records");
        cannot.put("group", "its group consumer needs ZooKeeper");
        cannot.put("transactions", "transactions came with 0.11");
        cannot.put("read_committed", "transactions came with 0.11");
        return answer;
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }

    private static JsonNode produce(JsonNode question) throws Exception {
        String kind = question.get("config").path("producer").asText("sync");
        return kind.equals("new") ? produceNew(question) : produceOld(question, kind);
    }

    private static JsonNode produceOld(JsonNode question, String kind) throws Exception {
        Properties config = new Properties();
        config.put("metadata.broker.list", question.get("address").asText());
        config.put("producer.type", kind);
        config.put("request.required.acks", "-1");
        config.put("compression.codec", question.get("config").path("compression.type").asText("none"));
        config.put("partitioner.class", Chosen.class.getName());
        List<KeyedMessage<byte[], byte[]>> messages = new ArrayList<>();
        for (JsonNode record : question.get("records")) {
            messages.add(new KeyedMessage<>(
                question.get("topic").asText(), bytes(record.get(2)), record.get(0).asInt(), bytes(record.get(3))));
        }
        kafka.javaapi.producer.Producer<byte[], byte[]> producer =
            new kafka.javaapi.producer.Producer<>(new ProducerConfig(config));
        producer.send(messages);
        producer.close(); // sends what the async one still has
        return null;
    }

    private static JsonNode produceNew(JsonNode question) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", question.get("address").asText());
        config.put("acks", "all");
        config.put("linger.ms", "5");
        config.put("compression.type", question.get("config").path("compression.type").asText("none"));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ArrayNode answer = JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : question.get("records")) {
                sent.add(producer.send(new ProducerRecord<>(
                    question.get("topic").asText(), record.get(0).asInt(), bytes(record.get(2)), bytes(record.get(3)))));
            }
            for (Future<RecordMetadata> future : sent) {
                answer.add(future.get().offset());
            }
        }
        return answer;
    }

    private static SimpleConsumer connect(JsonNode question) {
        String[] address = question.get("address").asText().split(":");
        return new SimpleConsumer(address[0], Integer.parseInt(address[1]), TIMEOUT_MS, 64 << 10, "driver");
    }

    private static JsonNode consume(JsonNode question) {
        String from = question.get("topic").asText();
        ArrayNode rows = JSON.createArrayNode();
        SimpleConsumer consumer = connect(question);
        long until = System.nanoTime() + TIMEOUT_MS * 1_000_000L;
        try {
            question.get("ends").fields().forEachRemaining(one -> {
                int partition = Integer.parseInt(one.getKey());
                long position = question.get("starts").get(one.getKey()).asLong();
                check(consumer, from, partition, position, one.getValue().asLong());
                while (position < one.getValue().asLong()) {
                    position = fetch(consumer, from, partition, position, rows);
                    if (System.nanoTime() > until) {
                        throw new IllegalStateException("timed out after " + rows.size() + " records");
                    }
                }
            });
        } finally {
            consumer.close();
        }
        return rows;
    }

    /** The range to read must lie between the first offset of the log and its end. */
    private static void check(SimpleConsumer consumer, String from, int partition, long start, long end) {
        long first = offset(consumer, from, partition, -2);
        long last = offset(consumer, from, partition, -1);
        if (first > start || last < end) {
            throw new IllegalStateException(from + "-" + partition + " has " + first + " to " + last);
        }
    }

    private static long offset(SimpleConsumer consumer, String from, int partition, long time) {
        Map<TopicAndPartition, PartitionOffsetRequestInfo> wanted =
            Collections.singletonMap(new TopicAndPartition(from, partition), new PartitionOffsetRequestInfo(time, 1));
        OffsetResponse response = consumer.getOffsetsBefore(new OffsetRequest(wanted, (short) 0, "driver"));
        if (response.hasError()) {
            throw new IllegalStateException("error " + response.errorCode(from, partition));
        }
        return response.offsets(from, partition)[0];
    }

    /** Adds what one fetch brings; the next offset. */
    private static long fetch(SimpleConsumer consumer, String from, int partition, long position, ArrayNode rows) {
        FetchResponse response = consumer.fetch(
            new FetchRequestBuilder().clientId("driver").maxWait(20).minBytes(1)
                .addFetch(from, partition, position, FETCH_BYTES).build());
        if (response.hasError()) {
            throw new IllegalStateException("error " + response.errorCode(from, partition));
        }
        long next = position;
        for (MessageAndOffset one : response.messageSet(from, partition)) {
            if (one.offset() >= position) { // compressed batches come whole
                ArrayNode row = rows.addArray();
                row.add(partition).add(one.offset()).addNull().add(copy(one.message().key()));
                row.add(copy(one.message().payload())).addArray();
                next = one.nextOffset();
            }
        }
        return next;
    }

    private static byte[] copy(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] data = new byte[buffer.remaining()];
        buffer.get(data);
        return data;
    }

    private static JsonNode open(JsonNode question) {
        member = connect(question);
        group = question.get("group").asText();
        topic = question.get("topic").asText();
        List<TopicAndPartition> partitions = new ArrayList<>();
        member.send(new TopicMetadataRequest(Collections.singletonList(topic))).topicsMetadata().get(0)
            .partitionsMetadata().forEach(one -> partitions.add(new TopicAndPartition(topic, one.partitionId())));
        Map<TopicAndPartition, OffsetMetadataAndError> old = stored(partitions, (short) 0);
        Map<TopicAndPartition, OffsetMetadataAndError> now = stored(partitions, (short) 1);
        for (TopicAndPartition partition : partitions) {
            boolean unknown = old.get(partition).error() == UNKNOWN_TOPIC_OR_PARTITION;
            long offset = now.get(partition).offset();
            if (unknown ? offset != -1 : offset != old.get(partition).offset()) {
                throw new IllegalStateException("the stores differ: " + old + " " + now);
            }
            POSITIONS.put(partition.partition(), Math.max(offset, 0));
        }
        return null;
    }

    private static Map<TopicAndPartition, OffsetMetadataAndError> stored(List<TopicAndPartition> what, short version) {
        return member.fetchOffsets(new OffsetFetchRequest(group, what, version, 0, "driver")).offsets();
    }

    private static JsonNode poll() {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode rows = answer.putArray("rows");
        POSITIONS.replaceAll((partition, position) -> fetch(member, topic, partition, position, rows));
        return answer;
    }

    private static JsonNode commit() {
        for (short version = 0; version <= 1; version++) {
            Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
            POSITIONS.forEach((partition, position) -> offsets.put(
                new TopicAndPartition(topic, partition),
                new OffsetAndMetadata(position, "", System.currentTimeMillis())));
            OffsetCommitResponse told =
                member.commitOffsets(new OffsetCommitRequest(group, offsets, 0, "driver", version));
            if (told.hasError()) {
                throw new IllegalStateException("version " + version + ": " + told.errors());
            }
        }
        return null;
    }
}
