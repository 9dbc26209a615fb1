import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.StringJoiner;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.PrimitiveRef;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** Answers one line for each line: what Apache Kafka makes of a batch. See test_java.py. */
public class RecordsOracle {
    private static final HexFormat HEX = HexFormat.of();
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = in.readLine()) != null; System.out.flush()) {
            String[] words = line.split(" ", -1);
            try {
                System.out.println(switch (words[0]) {
                    case "read" -> "OK " + read(words[1]);
                    case "build" -> "OK " + build(words);
                    case "validate" -> "OK " + validate(words);
                    default -> throw new IllegalArgumentException(line);
                });
            } catch (RecordValidationException e) {
                System.out.println("ERROR " + Errors.forException(e.invalidException()).code());
            } catch (Throwable e) {
                System.out.println("ERROR " + Errors.forException(e).code());
            }
        }
    }

    private static MemoryRecords records(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(hex)));
    }

    /** read HEX: all records as offset,timestamp,key,value[,header key,header value]*; ... ("-" is null) */
    private static String read(String hex) {
        var all = new StringJoiner(";");
        for (MutableRecordBatch batch : records(hex).batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                record.ensureValid();
                var one = new StringJoiner(",");
                one.add(Long.toString(record.offset())).add(Long.toString(record.timestamp()));
                one.add(text(record.key())).add(text(record.value()));
                for (Header header : record.headers()) {
                    one.add(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)));
                    one.add(header.value() == null ? "-" : HEX.formatHex(header.value()));
                }
                all.add(one.toString());
            }
        }
        return all.toString();
    }

    private static String text(ByteBuffer content) {
        if (content == null)
            return "-";
        byte[] bytes = new byte[content.remaining()];
        content.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }

    /** build MAGIC CODEC COUNT VALUE_SIZE TIMESTAMP: a batch as the Java producer makes it */
    private static String build(String[] words) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), Byte.parseByte(words[1]),
            Compression.of(CompressionType.forId(Integer.parseInt(words[2]))).build(), TimestampType.CREATE_TIME, 0L);
        for (int i = 0; i < Integer.parseInt(words[3]); i++)
            builder.append(Long.parseLong(words[5]) + i, ("key " + i).getBytes(), new byte[Integer.parseInt(words[4])]);
        return text(builder.build().buffer());
    }

    /** validate VERSION APPEND_TIME COMPACTED CODEC|-1 NOW BEFORE AFTER HEX: max timestamp and the batch to append */
    private static String validate(String[] words) {
        short version = Short.parseShort(words[1]);
        long now = Long.parseLong(words[5]);
        MemoryRecords sent = records(words[8]);
        if (version >= 3)
            ProduceRequest.validateRecords(version, sent);
        // what UnifiedLog looks at before it calls the validator
        CompressionType source = CompressionType.NONE;
        int validBytes = 0;
        for (MutableRecordBatch batch : sent.batches()) {
            if (batch.magic() >= 2 && batch.baseOffset() != 0)
                throw Errors.INVALID_RECORD.exception();
            batch.ensureValid();
            validBytes += batch.sizeInBytes();
            if (batch.compressionType() != CompressionType.NONE)
                source = batch.compressionType();
        }
        ByteBuffer trimmed = sent.buffer().duplicate();
        trimmed.limit(validBytes);
        int wanted = Integer.parseInt(words[4]);
        CompressionType target = wanted < 0 ? source : CompressionType.forId(wanted);
        Time time = (Time) Proxy.newProxyInstance(RecordsOracle.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, arguments) -> method.getName().equals("milliseconds") ? (Object) now : (Object) 0L);
        var validator = new LogValidator(MemoryRecords.readableRecords(trimmed), PARTITION, time, source,
            Compression.of(target).build(), words[3].equals("1"), (byte) 2,
            words[2].equals("1") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            Long.parseLong(words[6]), Long.parseLong(words[7]), -1, AppendOrigin.CLIENT);
        var result = validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), new NoMetrics(),
            BufferSupplier.NO_CACHING);
        return result.maxTimestampMs() + " " + text(result.validatedRecords().buffer());
    }

    private static class NoMetrics implements LogValidator.MetricsRecorder {
        @Override public void recordInvalidMagic() {}
        @Override public void recordInvalidOffset() {}
        @Override public void recordInvalidSequence() {}
        @Override public void recordInvalidChecksums() {}
        @Override public void recordNoKeyCompactedTopic() {}
    }
}
