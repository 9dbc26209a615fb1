// What the Java client's Admin does with transactions, on stdin and stdout: a JSON question and answer a line.
//
//   {"do": "fence", "ids": [..]}                          -> {"fenced": {id: [producer id, epoch]}}
//   {"do": "terminate", "id": id}                         -> {}
//   {"do": "abort", "topic", "partition", "producer_id", "epoch", "coordinator_epoch"} -> {}
//   {"do": "list", "states": [..], "producer_ids": [..], "longer_ms": n, "pattern": text} -> {"found": {id: state}}
//
// or {"error": simple name of the exception}. The first of all is {"bootstrap": server} -> {}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FenceProducersResult;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.common.TopicPartition;

public class TransactionAdmin {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        String servers = JSON.readTree(questions.readLine()).get("bootstrap").asText();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            System.out.println("{}");
            System.out.flush();
            for (String line = questions.readLine(); line != null; line = questions.readLine()) {
                ObjectNode answer = JSON.createObjectNode();
                try {
                    answer(admin, JSON.readTree(line), answer);
                } catch (ExecutionException error) {
                    answer.removeAll();
                    answer.put("error", error.getCause().getClass().getSimpleName());
                }
                System.out.println(JSON.writeValueAsString(answer));
                System.out.flush();
            }
        }
    }

    private static void answer(Admin admin, JsonNode question, ObjectNode answer) throws Exception {
        switch (question.get("do").asText()) {
            case "fence" -> fence(admin, texts(question.get("ids")), answer.putObject("fenced"));
            case "terminate" -> admin.forceTerminateTransaction(question.get("id").asText()).result().get();
            case "abort" -> admin.abortTransaction(new AbortTransactionSpec(
                    new TopicPartition(question.get("topic").asText(), question.get("partition").asInt()),
                    question.get("producer_id").asLong(),
                    (short) question.get("epoch").asInt(),
                    question.get("coordinator_epoch").asInt())).all().get();
            case "list" -> list(admin, question, answer.putObject("found"));
            default -> throw new IllegalArgumentException(question.toString());
        }
    }

    private static void fence(Admin admin, List<String> ids, ObjectNode fenced) throws Exception {
        FenceProducersResult result = admin.fenceProducers(ids);
        for (String id : ids) {
            fenced.putArray(id).add(result.producerId(id).get()).add(result.epochId(id).get());
        }
    }

    private static void list(Admin admin, JsonNode question, ObjectNode found) throws Exception {
        ListTransactionsOptions options = new ListTransactionsOptions();
        if (question.has("states")) {
            options.filterStates(texts(question.get("states")).stream().map(TransactionState::parse).toList());
        }
        if (question.has("producer_ids")) {
            List<Long> ids = new ArrayList<>();
            question.get("producer_ids").forEach(id -> ids.add(id.asLong()));
            options.filterProducerIds(ids);
        }
        if (question.has("longer_ms")) {
            options.filterOnDuration(question.get("longer_ms").asLong());
        }
        if (question.has("pattern")) {
            options.filterOnTransactionalIdPattern(question.get("pattern").asText());
        }
        for (TransactionListing listing : admin.listTransactions(options).all().get()) {
            found.put(listing.transactionalId(), listing.state().toString());
        }
    }

    private static List<String> texts(JsonNode array) {
        List<String> texts = new ArrayList<>();
        array.forEach(text -> texts.add(text.asText()));
        return texts;
    }
}
