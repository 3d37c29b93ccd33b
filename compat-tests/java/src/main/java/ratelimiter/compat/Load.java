package ratelimiter.compat;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.redisson.api.RRateLimiter;

/** Many threads on one limiter. */
final class Load {
    private Load() {}

    /**
     * Lets each thread ask for {@code permits} again and again until {@code duration} has passed, waiting for them
     * with the time left where {@code wait} says so. Answers the grants and the calls.
     */
    static List<Long> run(RRateLimiter limiter, int threads, long permits, Duration duration, boolean wait)
            throws Exception {
        var grants = new AtomicLong();
        var calls = new AtomicLong();
        long end = System.nanoTime() + duration.toNanos();
        Callable<Void> caller = () -> {
            for (long left; (left = end - System.nanoTime()) > 0; ) {
                boolean granted = wait
                        ? limiter.tryAcquire(permits, TimeUnit.NANOSECONDS.toMillis(left), TimeUnit.MILLISECONDS)
                        : limiter.tryAcquire(permits);
                calls.incrementAndGet();
                if (granted) {
                    grants.incrementAndGet();
                }
            }
            return null;
        };

        var pool = Executors.newFixedThreadPool(threads);
        try {
            for (Future<Void> done : pool.invokeAll(IntStream.range(0, threads).mapToObj(i -> caller).toList())) {
                done.get();
            }
        } finally {
            pool.shutdown();
        }
        return List.of(grants.get(), calls.get());
    }
}
