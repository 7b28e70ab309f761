import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Base64;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * For each line "NAME RULES", both in base64 (a DER name, and ssl.principal.mapping.rules), prints "NAME MAPPED" in base64:
 * the name as a broker has it, and after the rules; or the class of the exception.
 */
public class PrincipalNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            String name = new X500Principal(Base64.getDecoder().decode(words[0])).getName();
            String mapped;
            try {
                String rules = new String(Base64.getDecoder().decode(words[1]), "UTF-8");
                mapped = "=" + SslPrincipalMapper.fromRules(rules).getName(name);
            } catch (Exception | StackOverflowError exception) {
                mapped = "!" + exception.getClass().getSimpleName();
            }
            System.out.println(encode(name) + " " + encode(mapped));
        }
    }

    private static String encode(String text) throws Exception {
        return Base64.getEncoder().encodeToString(text.getBytes("UTF-8"));
    }
}
