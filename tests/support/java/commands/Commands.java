// Apache Kafka's command line tools on stdin and stdout, all in one JVM: a JSON question and answer a line.
//
//   {"class": "org.apache.kafka.tools.TopicCommand", "arguments": [..], "input": text}
//       -> {"code": exit code, "output": what it printed, "errors": what it printed on stderr}
//
// Each runs its own `main`. Leaving the JVM becomes an error that ends `main`; the first exit code counts, as a tool may
// catch that error. Shutdown hooks run after `main`: the console producer sends its last records in one.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Deque;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.kafka.common.utils.Exit;

public class Commands {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final Deque<Runnable> HOOKS = new ConcurrentLinkedDeque<>();
    private static volatile Integer exitCode;

    private static final class Leave extends Error {
        Leave(int code) {
            super("exit code " + code, null, false, false); // tools that catch it print its stack
        }
    }

    private static void leave(int code) {
        if (exitCode == null) {
            exitCode = code;
        }
        throw new Leave(code);
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> leave(code));
        Exit.setHaltProcedure((code, message) -> leave(code));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.write((JSON.writeValueAsString(run(JSON.readTree(line))) + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
    }

    private static ObjectNode run(JsonNode question) throws Exception {
        String[] arguments = JSON.convertValue(question.get("arguments"), String[].class);
        byte[] input = question.get("input").asText().getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(input));
        PrintStream out = new PrintStream(output, true, StandardCharsets.UTF_8);
        PrintStream err = new PrintStream(errors, true, StandardCharsets.UTF_8);
        System.setOut(out);
        System.setErr(err);
        exitCode = null;
        try {
            // Scala's Console keeps the stream that was there when it was made, unless it is set.
            scala.Console.withOut(out, () -> scala.Console.withErr(err, () -> {
                call(question.get("class").asText(), arguments);
                return null;
            }));
        } catch (Leave leave) {
            // the code is known
        } catch (Throwable error) {
            error.printStackTrace(err);
            exitCode = exitCode == null ? Integer.valueOf(1) : exitCode;
        }
        for (Runnable hook = HOOKS.poll(); hook != null; hook = HOOKS.poll()) {
            hook.run();
        }
        out.flush();
        err.flush();
        ObjectNode answer = JSON.createObjectNode();
        answer.put("code", exitCode == null ? 0 : exitCode);
        answer.put("output", output.toString(StandardCharsets.UTF_8));
        answer.put("errors", errors.toString(StandardCharsets.UTF_8));
        return answer;
    }

    private static void call(String name, String[] arguments) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            throw Commands.<RuntimeException>unchecked(error.getCause());
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> T unchecked(Throwable error) throws T {
        throw (T) error;
    }
}
