// 0.9: records have no timestamps and no headers, and nobody asks for times.

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

final class Era {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4"};
    static final Map<String, String> CANNOT = new HashMap<>();

    static {
        CANNOT.put("timestamps", "messages have timestamps since 0.10");
        CANNOT.put("headers", "messages have headers since 0.11");
        CANNOT.put("transactions", "transactions came with 0.11");
        CANNOT.put("read_committed", "transactions came with 0.11");
        CANNOT.put("offset_for_time", "offsetsForTimes came with 0.10.1");
    }

    static JsonNode answer(JsonNode question, KafkaConsumer<byte[], byte[]> member) {
        throw new IllegalArgumentException(question.toString());
    }

    static List<String> protocols() {
        return Arrays.asList("classic");
    }

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, long timeoutMs) {
        return consumer.poll(timeoutMs);
    }

    static ProducerRecord<byte[], byte[]> record(
            String topic, int partition, Long timestamp, byte[] key, byte[] value,
            List<Map.Entry<String, byte[]>> headers) {
        return new ProducerRecord<>(topic, partition, key, value);
    }

    static Long timestamp(ConsumerRecord<byte[], byte[]> record) {
        return null;
    }

    static List<Map.Entry<String, byte[]>> headers(ConsumerRecord<byte[], byte[]> record) {
        return Collections.emptyList();
    }

    static Long offsetForTime(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long timestamp) {
        throw new UnsupportedOperationException("offsetsForTimes");
    }
}
