// What Kafka answers to a request that fails as a whole: the other side of test_errors_kafka.py.
//
// Standard input has a line per request: API key, version, the name of the error, its message ("-": none) and the
// request's body in hex. Each gets a line on standard output: the body of the response in hex, or "none" where Kafka sends none.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;

import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

public class ErrorOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(words[4]));
            ApiKeys api = ApiKeys.forId(Short.parseShort(words[0]));
            AbstractRequest request =
                AbstractRequest.parseRequest(api, version, new ByteBufferAccessor(body)).request;
            AbstractResponse response =
                request.getErrorResponse(0, Errors.valueOf(words[2]).exception(words[3].equals("-") ? null : words[3]));
            if (response == null) {
                System.out.println("none");
                continue;
            }
            ByteBuffer bytes = MessageUtil.toByteBufferAccessor(response.data(), version).buffer();
            byte[] sent = new byte[bytes.remaining()];
            bytes.get(sent);
            System.out.println(HexFormat.of().formatHex(sent));
        }
    }
}
