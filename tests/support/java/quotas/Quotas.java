// Apache Kafka's own measures of quotas, on stdin and stdout: a question and an answer in JSON, a line each.
//
//   {"kind": "rate", "bound": b, "samples": n, "window_ms": w, "events": [[ms, value], ..]}  -> {"throttle_ms": [..]}
//   {"kind": "bucket", the same}                                                             -> {"throttle_ms": [..]}
//
// For each event the time for which it is throttled, 0 within the quota, as `QuotaUtils` computes it; for a bucket this is
// how long it takes until there are tokens again.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

public class Quotas {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private static ObjectNode answer(JsonNode question) {
        boolean isRate = question.get("kind").asText().equals("rate");
        MetricConfig config = new MetricConfig()
            .samples(question.get("samples").asInt())
            .timeWindow(question.get("window_ms").asLong(), TimeUnit.MILLISECONDS)
            .quota(new Quota(question.get("bound").asDouble(), true));
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode throttled = answer.putArray("throttle_ms");
        try (Metrics metrics = new Metrics()) {
            Sensor sensor = metrics.sensor("s", config);
            MeasurableStat stat = isRate ? new Rate() : new TokenBucket();
            sensor.add(metrics.metricName("m", "g"), stat, config);
            for (JsonNode event : question.get("events")) {
                throttled.add(throttleMs(sensor, config, event.get(0).asLong(), event.get(1).asDouble()));
            }
        }
        return answer;
    }

    private static long throttleMs(Sensor sensor, MetricConfig config, long now, double value) {
        try {
            sensor.record(value, now, true);
            return 0;
        } catch (QuotaViolationException e) {
            if (e.metric().measurable() instanceof Rate rate) {
                double over = e.value() - e.bound();
                return Math.round(over / e.bound() * rate.windowSize(config, now));
            }
            return Math.round(-e.value() / e.bound() * 1000);
        }
    }
}
