// Kafka's own StandardAuthorizer: the other side of test_standard_authorizer.py.
//
// Reads lines of fields, separated by tabs, from the standard input:
//   new     super.users  allow.everyone.if.no.acl.found
//   add     number  resource type  resource name  pattern type  principal  host  operation  permission type
//   remove  number
//   ask     principal type  principal name  host  operation  resource type  resource name
//   any     principal type  principal name  host  operation  resource type
//   filter  resource type  resource name  pattern type  principal  host  operation  permission type
// Types, operations and permissions are Kafka's codes; - is null in a filter. For each "ask" and "any" one character
// is written, 1 for allowed and 0 for denied; for each "filter" the number of ACLs that match, and a space.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class AuthorizerOracle {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 9; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    static byte code(String text) {
        return Byte.parseByte(text);
    }

    static String nullable(String text) {
        return text.equals("-") ? null : text;
    }

    static Context context(String[] words) throws Exception {
        return new Context(new KafkaPrincipal(words[1], words[2]), InetAddress.getByName(words[3]));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder told = new StringBuilder();
        StandardAuthorizer authorizer = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "new" -> {
                    authorizer = new StandardAuthorizer();
                    Map<String, Object> settings = new HashMap<>();
                    settings.put("super.users", words[1]);
                    settings.put("allow.everyone.if.no.acl.found", words[2]);
                    authorizer.configure(settings);
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.completeInitialLoad();
                }
                case "add" -> authorizer.addAcl(new Uuid(7, Long.parseLong(words[1])), new StandardAcl(
                    ResourceType.fromCode(code(words[2])), words[3], PatternType.fromCode(code(words[4])),
                    words[5], words[6], AclOperation.fromCode(code(words[7])),
                    AclPermissionType.fromCode(code(words[8]))));
                case "remove" -> authorizer.removeAcl(new Uuid(7, Long.parseLong(words[1])));
                case "ask" -> {
                    Action action = new Action(AclOperation.fromCode(code(words[4])), new ResourcePattern(
                        ResourceType.fromCode(code(words[5])), words[6], PatternType.LITERAL), 1, false, false);
                    told.append(authorizer.authorize(context(words), List.of(action)).get(0)
                        == AuthorizationResult.ALLOWED ? 1 : 0);
                }
                case "any" -> told.append(authorizer.authorizeByResourceType(context(words),
                    AclOperation.fromCode(code(words[4])), ResourceType.fromCode(code(words[5])))
                    == AuthorizationResult.ALLOWED ? 1 : 0);
                case "filter" -> {
                    AclBindingFilter filter = new AclBindingFilter(
                        new ResourcePatternFilter(ResourceType.fromCode(code(words[1])), nullable(words[2]),
                            PatternType.fromCode(code(words[3]))),
                        new AccessControlEntryFilter(nullable(words[4]), nullable(words[5]),
                            AclOperation.fromCode(code(words[6])), AclPermissionType.fromCode(code(words[7]))));
                    int count = 0;
                    for (AclBinding ignored : authorizer.acls(filter))
                        count++;
                    told.append(count).append(' ');
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.print(told);
    }
}
