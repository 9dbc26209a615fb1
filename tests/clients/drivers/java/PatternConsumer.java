import java.time.Duration;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.serialization.StringDeserializer;

/** address, group, RE2 expression, topics to wait for: prints the topics of the assignment, or the exception. */
public final class PatternConsumer {
    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("group.id", arguments[1]);
        config.put("group.protocol", "consumer");
        config.put("auto.offset.reset", "earliest");
        int wanted = Integer.parseInt(arguments[3]);
        TreeSet<String> topics = new TreeSet<>();
        int records = 0;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(new SubscriptionPattern(arguments[2]));
            long end = System.nanoTime() + 60_000_000_000L;
            while (System.nanoTime() < end && (topics.size() < wanted || records < wanted)) {
                records += consumer.poll(Duration.ofMillis(100)).count();
                consumer.assignment().forEach(partition -> topics.add(partition.topic()));
            }
            System.out.println(topics + " " + records);
        } catch (RuntimeException error) {
            System.out.println(error.getClass().getSimpleName());
        }
    }
}
