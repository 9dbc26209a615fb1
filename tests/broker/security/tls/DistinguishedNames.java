// Reads lines `name <hex of DER>` and `rules <rules> TAB <name>`; answers with the hex of what Java and Apache Kafka
// make of them, `none` when no rule matches, or `bad`.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class DistinguishedNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null; )
            System.out.println(answer(line.substring(0, line.indexOf(' ')), line.substring(line.indexOf(' ') + 1)));
    }

    static String answer(String kind, String text) {
        try {
            return hex(kind.equals("name")
                ? new X500Principal(HexFormat.of().parseHex(text)).getName()
                : SslPrincipalMapper.fromRules(text.split("\t", -1)[0]).getName(text.split("\t", -1)[1]));
        } catch (SslPrincipalMapper.NoMatchingRule error) {
            return "none";
        } catch (RuntimeException | java.io.IOException error) {
            return "bad";
        }
    }

    static String hex(String text) {
        return "=" + HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
