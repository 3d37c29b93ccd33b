package ratelimiter.compat;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.stream.LongStream;
import org.redisson.api.RRateLimiter;

/** Threads that always wait: each acquires again as soon as it has been granted. */
final class Backlog {
    private static final long SECOND = Duration.ofSeconds(1).toNanos();

    private Backlog() {}

    /**
     * Lets {@code threads} threads acquire {@code permits} again and again. Answers how many permits they were granted in
     * each second of {@code duration}, as soon as it is over. A thread that waits then goes on waiting; it ends with the
     * process, or with an exception when its client is shut down.
     */
    static List<Long> run(RRateLimiter limiter, int threads, long permits, Duration duration)
            throws InterruptedException {
        long start = System.nanoTime();
        long length = duration.toNanos();
        var perSecond = new AtomicLongArray((int) ((length + SECOND - 1) / SECOND));
        for (int i = 0; i < threads; i++) {
            var caller = new Thread(() -> acquireUntil(limiter, permits, start, length, perSecond));
            caller.setDaemon(true);
            caller.start();
        }
        Thread.sleep(Math.max(0, length - (System.nanoTime() - start)) / 1_000_000 + 1);
        return LongStream.range(0, perSecond.length())
                .mapToObj(second -> perSecond.get((int) second))
                .toList();
    }

    private static void acquireUntil(
            RRateLimiter limiter, long permits, long start, long length, AtomicLongArray perSecond) {
        try {
            while (true) {
                limiter.acquire(permits);
                long elapsed = System.nanoTime() - start;
                if (elapsed >= length) {
                    return;
                }
                perSecond.addAndGet((int) (elapsed / SECOND), permits);
            }
        } catch (RuntimeException shutDown) {
            if (System.nanoTime() - start < length) {
                throw shutDown;
            }
        }
    }
}
