// Apache Kafka's StandardAuthorizer, asked at random: a seed in, ACLs and questions with their answers out.
//
//   java Decisions.java SEED DECISIONS BY_TYPE ->
//     SET super.users allow.everyone.if.no.acl.found    a new authorizer without ACLs, with this config
//     ACL type name pattern principal host operation permission
//     REQ principal host operation type name 0|1        may it?
//     BYT principal host operation type 0|1             may it, on some resource of the type?
//
// Fields are separated by tabs; types, patterns, operations and permissions are Kafka's codes.

import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.internals.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Decisions {
    private static final String[] NAMES = {
        "a", "ab", "abc", "abcd", "b", "ba", "*", "*a", "kafka-cluster", "hardcode", "ha"
    };
    private static final String[] RESOURCES = { // LITERAL * does not hold there for other names that begin with a star
        "a", "ab", "abc", "abcd", "b", "ba", "*", "a*", "kafka-cluster", "hardcode", "ha", "z"
    };
    private static final String[] PRINCIPALS = {
        "User:alice", "User:bob", "User:*", "User:", "Group:alice", "User:root", "Role:a:b"
    };
    private static final String[] CLIENTS = { // StandardAuthorizer fails on a client that is called User:*
        "User:alice", "User:bob", "User:", "Group:alice", "User:root", "Role:a:b"
    };
    private static final String[] ACL_HOSTS = {
        "*", "*", "*", "10.0.0.1", "10.0.0.77/24", "10.0.0.0/8", "0.0.0.0/0", "10.0.0.1/32", "2001:db8:0:0:0:0:0:1",
        "2001:db8::/32", "::/0", "fe80::/10", "localhost"
    };
    private static final String[] CLIENT_HOSTS = {
        "10.0.0.1", "10.0.0.255", "10.1.0.1", "192.168.0.1", "2001:db8::1", "2001:db9::1", "fe80::1", "::ffff:10.0.0.1", "::1"
    };

    private record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override public String listenerName() { return "L"; }
        @Override public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        @Override public int requestType() { return 3; }
        @Override public int requestVersion() { return 1; }
        @Override public String clientId() { return "c"; }
        @Override public int correlationId() { return 1; }
    }

    private final Random random;
    private final PrintStream out;
    private StandardAuthorizer authorizer;

    private Decisions(long seed, PrintStream out) {
        this.random = new Random(seed);
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.UTF_8);
        Decisions all = new Decisions(Long.parseLong(args[0]), out);
        long decisions = Long.parseLong(args[1]);
        long byType = Long.parseLong(args[2]);
        while (decisions > 0 || byType > 0) {
            all.begin();
            int some = 100 + all.random.nextInt(300);
            for (int i = 0; i < some && decisions > 0; i++, decisions--) {
                all.ask();
            }
            for (int i = 0; i < some / 10 && byType > 0; i++, byType--) {
                all.askByType();
            }
        }
        out.flush();
    }

    private <T> T any(T[] from) {
        return from[random.nextInt(from.length)];
    }

    private void begin() throws Exception {
        String superUsers = random.nextInt(3) == 0 ? "User:root; Group:alice" : "";
        boolean everyone = random.nextInt(3) == 0;
        out.println("SET\t" + superUsers + "\t" + (everyone ? 1 : 0));
        authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of("super.users", superUsers, "allow.everyone.if.no.acl.found", String.valueOf(everyone)));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.start(new Information());
        authorizer.completeInitialLoad();
        Set<StandardAcl> seen = new HashSet<>();
        int count = random.nextInt(random.nextBoolean() ? 6 : 40);
        for (int i = 0; i < count; i++) {
            StandardAcl acl = new StandardAcl(
                type(), any(NAMES), random.nextBoolean() ? PatternType.LITERAL : PatternType.PREFIXED, any(PRINCIPALS),
                any(ACL_HOSTS), operation(), random.nextInt(4) == 0 ? AclPermissionType.DENY : AclPermissionType.ALLOW);
            if (!seen.add(acl)) {
                continue;
            }
            authorizer.addAcl(Uuid.randomUuid(), acl);
            out.println("ACL\t" + acl.resourceType().code() + "\t" + acl.resourceName() + "\t" + acl.patternType().code()
                + "\t" + acl.principal() + "\t" + acl.host() + "\t" + acl.operation().code() + "\t" + acl.permissionType().code());
        }
    }

    private ResourceType type() {
        return ResourceType.fromCode((byte) (random.nextInt(3) > 0 ? 2 : 2 + random.nextInt(6)));
    }

    private AclOperation operation() {
        return AclOperation.fromCode((byte) (random.nextBoolean() ? 2 + random.nextInt(7) : 2 + random.nextInt(14)));
    }

    private void ask() throws Exception {
        String principal = any(CLIENTS);
        InetAddress host = InetAddress.getByName(any(CLIENT_HOSTS));
        AclOperation operation = operation();
        ResourceType type = type();
        String name = any(RESOURCES);
        Action action = new Action(operation, new ResourcePattern(type, name, PatternType.LITERAL), 1, true, true);
        Context context = new Context(SecurityUtils.parseKafkaPrincipal(principal), host);
        boolean allowed = authorizer.authorize(context, List.of(action)).get(0) == AuthorizationResult.ALLOWED;
        out.println("REQ\t" + principal + "\t" + host.getHostAddress() + "\t" + operation.code() + "\t" + type.code() + "\t"
            + name + "\t" + (allowed ? 1 : 0));
    }

    private void askByType() throws Exception {
        String principal = any(CLIENTS);
        InetAddress host = InetAddress.getByName(any(CLIENT_HOSTS));
        AclOperation operation = AclOperation.fromCode((byte) (3 + random.nextInt(13)));
        ResourceType type = type();
        Context context = new Context(SecurityUtils.parseKafkaPrincipal(principal), host);
        boolean allowed = authorizer.authorizeByResourceType(context, operation, type) == AuthorizationResult.ALLOWED;
        out.println("BYT\t" + principal + "\t" + host.getHostAddress() + "\t" + operation.code() + "\t" + type.code() + "\t"
            + (allowed ? 1 : 0));
    }

    private static final class Information implements org.apache.kafka.server.authorizer.AuthorizerServerInfo {
        @Override public org.apache.kafka.common.ClusterResource clusterResource() {
            return new org.apache.kafka.common.ClusterResource("c");
        }
        @Override public int brokerId() { return 1; }
        @Override public java.util.Collection<org.apache.kafka.common.Endpoint> endpoints() { return List.of(); }
        @Override public org.apache.kafka.common.Endpoint interBrokerEndpoint() { return null; }
        @Override public java.util.Collection<String> earlyStartListeners() { return List.of(); }
    }
}
