import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
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
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Answers questions by Apache Kafka's own StandardAuthorizer. Lines of words, with tabs between them:
 *
 *   new SUPER_USERS ALLOW_EVERYONE                                   begins a set of ACLs
 *   acl TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION        adds one, all types by their numbers
 *   ask PRINCIPAL HOST OPERATION TYPE NAME                           answers 1 (allowed) or 0
 *   some PRINCIPAL HOST OPERATION TYPE                               the same, for any resource of the type
 */
public class StandardAuthorizerOracle {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "client"; }
        public int correlationId() { return 0; }
    }

    private static final Metrics METRICS = new Metrics();
    private static int sets = 0;
    private static String superUsers;
    private static String everyone;
    private static final Map<Uuid, StandardAcl> acls = new HashMap<>();
    private static StandardAuthorizer authorizer;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "new":
                    superUsers = words[1];
                    everyone = words[2];
                    acls.clear();
                    authorizer = null;
                    break;
                case "acl":
                    acls.put(Uuid.randomUuid(), new StandardAcl(
                        type(words[1]), words[2], PatternType.fromCode(Byte.parseByte(words[3])),
                        words[4], words[5], operation(words[6]),
                        AclPermissionType.fromCode(Byte.parseByte(words[7]))));
                    break;
                default:
                    out.println(answer(words) == AuthorizationResult.ALLOWED ? "1" : "0");
            }
        }
        out.flush();
    }

    private static AuthorizationResult answer(String[] words) throws Exception {
        if (authorizer == null) {
            authorizer = new StandardAuthorizer();
            authorizer.configure(Map.of(
                "node.id", "0", "super.users", superUsers, "allow.everyone.if.no.acl.found", everyone));
            authorizer.withPluginMetrics(new PluginMetricsImpl(METRICS, Map.of("set", Integer.toString(++sets))));
            authorizer.loadSnapshot(acls);
            authorizer.completeInitialLoad();
        }
        Context context = new Context(SecurityUtils.parseKafkaPrincipal(words[1]), InetAddress.getByName(words[2]));
        if (words[0].equals("some")) {
            return authorizer.authorizeByResourceType(context, operation(words[3]), type(words[4]));
        }
        ResourcePattern resource = new ResourcePattern(type(words[4]), words[5], PatternType.LITERAL);
        return authorizer.authorize(context, List.of(new Action(operation(words[3]), resource, 1, false, false))).get(0);
    }

    private static ResourceType type(String code) {
        return ResourceType.fromCode(Byte.parseByte(code));
    }

    private static AclOperation operation(String code) {
        return AclOperation.fromCode(Byte.parseByte(code));
    }
}
