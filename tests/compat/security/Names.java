import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import javax.security.auth.x500.X500Principal;

/** Reads distinguished names (DER, in base64), one in a line, and writes what Java calls them (in base64). */
public class Names {
    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            var name = new X500Principal(Base64.getDecoder().decode(line)).getName();
            System.out.println(Base64.getEncoder().encodeToString(name.getBytes(StandardCharsets.UTF_8)));
        }
    }
}
