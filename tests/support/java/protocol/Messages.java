// Apache Kafka's own messages on stdin and stdout, one question and one answer a line, fields separated by tabs:
//
//   write   NAME VERSION JSON   ->  ok HEX       the message read from JSON, as bytes
//   echo    NAME VERSION HEX    ->  ok HEX       the bytes read into a message and written again
//   default NAME VERSION        ->  ok HEX       a message nobody touched, as bytes
//   errors                      ->  ok CODE NAME RETRIABLE, ...
//
// Anything that Kafka refuses is answered with "error" and the exception.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class Messages {
    private static final String PACKAGE = "org.apache.kafka.common.message.";
    private static final HexFormat HEX = HexFormat.of();
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Method> METHODS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok\t" + answer(line.split("\t", -1));
            } catch (InvocationTargetException error) {
                answer = "error\t" + oneLine(error.getCause());
            } catch (Throwable error) {
                answer = "error\t" + oneLine(error);
            }
            out.println(answer);
        }
    }

    private static String oneLine(Throwable error) {
        return error.toString().replaceAll("\\s+", " ");
    }

    private static String answer(String[] question) throws Exception {
        if (question[0].equals("errors")) {
            return errors();
        }
        String name = question[1];
        short version = Short.parseShort(question[2]);
        switch (question[0]) {
            case "write":
                return bytes(fromJson(name, version, JSON.readTree(question[3])), version);
            case "echo":
                return bytes(fromBytes(name, version, question[3]), version);
            case "default":
                return bytes(empty(name), version);
            default:
                throw new IllegalArgumentException(question[0]);
        }
    }

    private static ApiMessage empty(String name) throws Exception {
        return (ApiMessage) Class.forName(PACKAGE + name + "Data").getConstructor().newInstance();
    }

    private static ApiMessage fromBytes(String name, short version, String hex) throws Exception {
        ByteBuffer buffer = ByteBuffer.wrap(HEX.parseHex(hex));
        ApiMessage message = empty(name);
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes left");
        }
        return message;
    }

    private static String bytes(ApiMessage message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int size = message.size(cache, version);
        ByteBuffer buffer = ByteBuffer.allocate(size);
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("the size is not what was written");
        }
        return HEX.formatHex(buffer.array());
    }

    private static ApiMessage fromJson(String name, short version, JsonNode node) throws Exception {
        return (ApiMessage) converter(name, "read", JsonNode.class, short.class).invoke(null, node, version);
    }

    private static Method converter(String name, String method, Class<?>... types) throws Exception {
        Method found = METHODS.get(name + method);
        if (found == null) {
            found = Class.forName(PACKAGE + name + "DataJsonConverter").getMethod(method, types);
            METHODS.put(name + method, found);
        }
        return found;
    }

    private static String errors() {
        StringJoiner rows = new StringJoiner(",");
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            rows.add(error.code() + " " + error.name() + " " + retriable);
        }
        return rows.toString();
    }
}
