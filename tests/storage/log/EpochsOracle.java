import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.file.Files;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

/** Apache Kafka's epoch cache: one command a line, one answer a line. */
public class EpochsOracle {
    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        LeaderEpochFileCache cache = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            long number = words.length > 1 ? Long.parseLong(words[1]) : 0;
            long second = words.length > 2 ? Long.parseLong(words[2]) : 0;
            String answer = "";
            switch (words[0]) {
                case "new" -> {
                    File file = new File(Files.createTempDirectory("epochs").toFile(), "leader-epoch-checkpoint");
                    cache = new LeaderEpochFileCache(
                        new TopicPartition("t", 0),
                        new LeaderEpochCheckpointFile(file, new LogDirFailureChannel(1)),
                        scheduler);
                }
                case "assign" -> cache.assign((int) number, second);
                case "truncate_from_end" -> cache.truncateFromEndAsyncFlush(number);
                case "truncate_from_start" -> cache.truncateFromStartAsyncFlush(number);
                case "end_offset_for" -> {
                    var found = cache.endOffsetFor((int) number, second);
                    answer = found.getKey() + " " + found.getValue();
                }
                case "epoch_of" -> answer = "" + cache.epochForOffset(number).orElse(-1);
                default -> throw new IllegalArgumentException(line);
            }
            if (answer.isEmpty()) {
                StringBuilder entries = new StringBuilder();
                for (EpochEntry entry : cache.epochEntries()) {
                    entries.append(entry.epoch()).append(' ').append(entry.startOffset()).append(' ');
                }
                answer = entries.toString().trim();
            }
            System.out.println(answer);
        }
        System.exit(0);
    }
}
