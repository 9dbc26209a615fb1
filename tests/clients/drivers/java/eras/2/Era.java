// 2.1 to 4: zstd, and timeouts are durations.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.AbstractMap.SimpleEntry;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

final class Era {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    static final Map<String, String> CANNOT = new HashMap<>();

    static List<String> protocols() {
        return ConsumerConfig.configNames().contains("group.protocol")
            ? Arrays.asList("classic", "consumer") : Arrays.asList("classic");
    }

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long timeoutMs) {
        return consumer.poll(Duration.ofMillis(timeoutMs));
    }

    static JsonNode answer(JsonNode question, KafkaConsumer<byte[], byte[]> member) throws Exception {
        return Transactions.answer(question, member);
    }

    static void sendOffsets(
            KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, OffsetAndMetadata> offsets,
            KafkaConsumer<byte[], byte[]> member, String group) {
        producer.sendOffsetsToTransaction(offsets, member.groupMetadata());
    }

    static ProducerRecord<byte[], byte[]> record(
            String topic, int partition, Long timestamp, byte[] key, byte[] value,
            List<Map.Entry<String, byte[]>> headers) {
        List<Header> made = new ArrayList<>();
        for (Map.Entry<String, byte[]> header : headers) {
            made.add(new RecordHeader(header.getKey(), header.getValue()));
        }
        return new ProducerRecord<>(topic, partition, timestamp, key, value, made);
    }

    static Long timestamp(ConsumerRecord<byte[], byte[]> record) {
        return record.timestamp();
    }

    static List<Map.Entry<String, byte[]>> headers(ConsumerRecord<byte[], byte[]> record) {
        List<Map.Entry<String, byte[]>> found = new ArrayList<>();
        for (Header header : record.headers()) {
            found.add(new SimpleEntry<>(header.key(), header.value()));
        }
        return found;
    }

    static Long offsetForTime(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long timestamp) {
        OffsetAndTimestamp found =
            consumer.offsetsForTimes(Collections.singletonMap(partition, timestamp)).get(partition);
        return found == null ? null : found.offset();
    }
}
