import java.util.Locale;
import org.redisson.Redisson;
import org.redisson.api.RRateLimiter;
import org.redisson.config.Config;

/**
 * A service on Redisson: two threads ask a limiter for one permit after the other. Each line on stdout is one event:
 * {@code caller permits-left what}.
 *
 * <p>Arguments: the server's URL, the limiter's name, how many milliseconds it runs.
 */
final class JavaService {
    public static void main(String[] args) throws Exception {
        var config = new Config();
        config.useSingleServer().setAddress(args[0]);
        var redisson = Redisson.create(config);
        var limiter = redisson.getRateLimiter(args[1]);
        long end = System.nanoTime() + Long.parseLong(args[2]) * 1_000_000;
        var callers = new Thread[2];
        for (int i = 0; i < callers.length; i++) {
            var name = "java-" + (i + 1);
            callers[i] = new Thread(() -> ask(limiter, name, end));
            callers[i].start();
        }
        for (var caller : callers) {
            caller.join();
        }
        redisson.shutdown();
    }

    private static void ask(RRateLimiter limiter, String name, long end) {
        while (System.nanoTime() < end) {
            if (limiter.tryAcquire(1)) {
                print(limiter, name, "granted at once");
            } else {
                print(limiter, name, "denied, waits");
                limiter.acquire(1);
                print(limiter, name, "granted after waiting");
            }
            pause();
        }
    }

    private static void print(RRateLimiter limiter, String name, String what) {
        System.out.println(String.format(Locale.ROOT, "%s %d %s", name, limiter.availablePermits(), what));
    }

    private static void pause() {
        try {
            Thread.sleep(150);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }
}
