// Transactions, which came with 0.11: one producer in each process.

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

final class Transactions {
    private static KafkaProducer<byte[], byte[]> producer;

    static JsonNode answer(JsonNode question, KafkaConsumer<byte[], byte[]> member) throws Exception {
        switch (question.get("do").asText()) {
            case "begin": begin(question); return null;
            case "send": return Driver.send(producer, question);
            case "end": end(question, member); return null;
            default: throw new IllegalArgumentException(question.toString());
        }
    }

    private static void begin(JsonNode question) {
        if (producer == null) {
            producer = Driver.producer(Driver.config(question, "transactional.id", question.get("id").asText()));
            producer.initTransactions();
        }
        producer.beginTransaction();
    }

    private static void end(JsonNode question, KafkaConsumer<byte[], byte[]> member) {
        if (question.get("positions").asBoolean()) {
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            for (TopicPartition partition : member.assignment()) {
                positions.put(partition, new OffsetAndMetadata(member.position(partition)));
            }
            Era.sendOffsets(producer, positions, member, question.get("group").asText());
        }
        if (question.get("commit").asBoolean()) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }
}
