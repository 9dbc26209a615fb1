import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes transactions as a script on its input says, a word a step, into partition 0 of a topic:
 *   b3  the producer "tx-3" begins a transaction (its first: initTransactions before)
 *   s3:5  it sends five records, flushed as a batch
 *   c3, a3  it commits, aborts
 *   n:5  five records outside of any transaction
 * Arguments: bootstrap servers, topic, prefix of the transactional ids. Open transactions are left open.
 */
public class Transactions {
    public static void main(String[] arguments) throws Exception {
        Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
        int number = 0;
        try (Scanner steps = new Scanner(System.in)) {
            while (steps.hasNext()) {
                String[] step = steps.next().split(":");
                String who = step[0].substring(1);
                KafkaProducer<byte[], byte[]> producer = producers.get(who);
                if (producer == null) {
                    producer = open(arguments[0], who.isEmpty() ? null : arguments[2] + who);
                    producers.put(who, producer);
                }
                switch (step[0].charAt(0)) {
                    case 'b' -> producer.beginTransaction();
                    case 'c' -> producer.commitTransaction();
                    case 'a' -> producer.abortTransaction();
                    default -> {
                        for (int i = 0; i < Integer.parseInt(step[1]); i++) {
                            byte[] text = ("record-" + number++ + "-".repeat(400)).getBytes();
                            producer.send(new ProducerRecord<>(arguments[1], 0, ("key-" + number % 7).getBytes(), text));
                        }
                        producer.flush();
                    }
                }
            }
        }
        System.out.println("done");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static KafkaProducer<byte[], byte[]> open(String servers, String transactionalId) {
        Properties config = new Properties();
        config.put("bootstrap.servers", servers);
        config.put("linger.ms", "1000");
        config.put("batch.size", "262144");
        if (transactionalId != null) {
            config.put("transactional.id", transactionalId);
            config.put("transaction.timeout.ms", "600000");
        }
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        if (transactionalId != null) {
            producer.initTransactions();
        }
        return producer;
    }
}
