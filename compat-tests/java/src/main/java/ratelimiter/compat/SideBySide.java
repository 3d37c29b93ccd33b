package ratelimiter.compat;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson with its default settings, for the side-by-side bench: a request a line on stdin, its answer a line of
 * numbers on stdout, one after the other. The first line on stdout names the JVM. What fails ends the process.
 *
 * <pre>
 * call sync|async NAME limiters callers warmUpMs measuredMs    decisions grants ns p50 p99 cpuNs
 * take NAME callers permits                                    grants
 * wait NAME waiters                                            ns
 * </pre>
 */
public final class SideBySide {
    private final RedissonClient redisson;

    private SideBySide(String url) {
        Config config = new Config();
        config.useSingleServer().setAddress(url);
        redisson = Redisson.create(config);
    }

    public static void main(String[] args) throws IOException {
        var answers = System.out;
        // Nothing that a library prints may get between the answers.
        System.setOut(System.err);
        int exit = 0;
        try {
            var redisson = new SideBySide(args[0]);
            answers.println(System.getProperty("java.vm.name") + " " + System.getProperty("java.vm.version"));
            var requests = new BufferedReader(new InputStreamReader(System.in, UTF_8));
            for (String line; (line = requests.readLine()) != null; ) {
                var answer = redisson.run(line.split(" "));
                answers.println(answer.stream().map(String::valueOf).collect(Collectors.joining(" ")));
            }
        } catch (Exception failed) {
            failed.printStackTrace();
            exit = 1;
        }
        Runtime.getRuntime().halt(exit);
    }

    private List<Long> run(String[] words) throws Exception {
        switch (words[0]) {
            case "call":
                return new Callers(redisson, words[2], Integer.parseInt(words[3]))
                        .run(
                                words[1].equals("async"),
                                Integer.parseInt(words[4]),
                                Long.parseLong(words[5]),
                                Long.parseLong(words[6]));
            case "take":
                return take(redisson.getRateLimiter(words[1]), Integer.parseInt(words[2]), Long.parseLong(words[3]));
            case "wait":
                return waitInThreads(redisson.getRateLimiter(words[1]), Integer.parseInt(words[2]));
            default:
                throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    /** Takes so many permits, one by one. */
    private static List<Long> take(RRateLimiter limiter, int callers, long permits) throws Exception {
        var left = new AtomicLong(permits);
        var grants = new AtomicLong();
        inThreads(callers, () -> {
            while (left.getAndDecrement() > 0) {
                if (limiter.tryAcquire(1)) {
                    grants.incrementAndGet();
                }
            }
            return null;
        });
        return List.of(grants.get());
    }

    /** Each thread waits for one permit. Answers when the last one had its own. */
    private static List<Long> waitInThreads(RRateLimiter limiter, int waiters) throws Exception {
        long start = System.nanoTime();
        inThreads(waiters, () -> {
            limiter.acquire(1);
            return null;
        });
        return List.of(System.nanoTime() - start);
    }

    private static void inThreads(int threads, Callable<Void> call) throws Exception {
        var pool = Executors.newFixedThreadPool(threads);
        try {
            var calls = IntStream.range(0, threads).mapToObj(i -> call).toList();
            for (Future<Void> done : pool.invokeAll(calls)) {
                done.get();
            }
        } finally {
            pool.shutdown();
        }
    }
}
