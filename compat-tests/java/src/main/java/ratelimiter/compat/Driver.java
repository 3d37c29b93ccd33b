package ratelimiter.compat;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.util.Arrays;
import java.util.concurrent.Executors;

/**
 * Drives the Redisson on the class path: a request a line on stdin, its answer a line on stdout.
 *
 * <pre>
 * seq command argument…        seq ok value…
 *                              seq err ExceptionSimpleName message
 * </pre>
 *
 * Arguments and values are percent-encoded, a lone {@code %} is the empty one. Each request runs in a thread of
 * its own, so answers come in the order in which they are ready. The end of stdin ends the process at once.
 */
public final class Driver {
    private final Commands commands = new Commands();
    // Not System.out: nothing that a library prints may get between the answers.
    private final FileOutputStream answers = new FileOutputStream(FileDescriptor.out);

    public static void main(String[] none) throws IOException {
        System.setOut(System.err);
        new Driver().serve();
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws IOException {
        var threads = Executors.newCachedThreadPool();
        var requests = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            String[] words = line.split(" ");
            threads.execute(() -> write(words[0] + " " + answer(words)));
        }
    }

    private String answer(String[] words) {
        try {
            String[] args = Arrays.stream(words).skip(2).map(Driver::decode).toArray(String[]::new);
            var answer = new StringBuilder("ok");
            for (Object value : commands.run(words[1], args)) {
                answer.append(' ').append(encode(String.valueOf(value)));
            }
            return answer.toString();
        } catch (NoSuchMethodError | NoClassDefFoundError lacking) {
            // The driver is compiled against the newest version and runs with older ones too.
            return error("Unsupported", "this Redisson lacks " + lacking.getMessage());
        } catch (Throwable e) {
            return error(e.getClass().getSimpleName(), String.valueOf(e.getMessage()));
        }
    }

    private static String error(String exception, String message) {
        return "err " + exception + " " + encode(message);
    }

    private void write(String answer) {
        byte[] line = (answer + "\n").getBytes(UTF_8);
        synchronized (answers) {
            try {
                answers.write(line);
            } catch (IOException nobodyListens) {
                Runtime.getRuntime().halt(1);
            }
        }
    }

    private static String decode(String word) {
        return word.equals("%") ? "" : URLDecoder.decode(word, UTF_8);
    }

    private static String encode(String value) {
        return value.isEmpty() ? "%" : URLEncoder.encode(value, UTF_8).replace("+", "%20");
    }
}
