import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the words of "lines" into "counts", exactly once: nothing is cached, so each occurrence of a word writes its
 * next number. The store is in memory, and comes back from its changelog. Runs until it is killed. Arguments: bootstrap
 * servers, state directory.
 */
public class WordCount {
    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put("application.id", "word-count");
        config.put("bootstrap.servers", arguments[0]);
        config.put("state.dir", arguments[1]);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("statestore.cache.max.bytes", "0");
        config.put("auto.offset.reset", "earliest");
        // An instance that was killed is missed soon, and so is its transaction.
        config.put("consumer.session.timeout.ms", "2000");
        config.put("consumer.heartbeat.interval.ms", "500");
        config.put("producer.transaction.timeout.ms", "2000");
        config.put("reconnect.backoff.max.ms", "200");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts-store"))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long()))
                .toStream()
                .to("counts", Produced.with(Serdes.String(), Serdes.Long()));

        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.start();
    }
}
