// A consumer that moves to a mirror asks with the class of MirrorMaker 2 where it is to go on.
//     arguments: bootstrap servers, alias of the source, group
//     prints: topic partition offset, a line each, sorted

import java.time.Duration;
import java.util.Map;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

public class TranslateOffsets {
    public static void main(String[] args) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", args[0]);
        RemoteClusterUtils.translateOffsets(properties, args[1], args[2], Duration.ofSeconds(30)).entrySet().stream()
            .map(one -> one.getKey().topic() + " " + one.getKey().partition() + " " + one.getValue().offset())
            .sorted()
            .forEach(System.out::println);
    }
}
