package ratelimiter.compat;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.function.LongConsumer;
import java.util.stream.LongStream;
import org.redisson.api.RRateLimiter;

/** Threads that always wait: each acquires again as soon as it has been granted. */
final class Backlog {
    private static final long SECOND = Duration.ofSeconds(1).toNanos();

    private Backlog() {}

    /**
     * Lets {@code threads} threads acquire {@code permits} again and again for {@code duration}. Answers how many permits
     * they were granted in each second of it, as soon as it is over or they were granted {@code enough}. A thread that waits
     * then goes on waiting; it ends with the process, or with an exception when its client is shut down.
     */
    static List<Long> run(RRateLimiter limiter, int threads, long permits, Duration duration, long enough)
            throws InterruptedException {
        long start = System.nanoTime();
        long length = duration.toNanos();
        var perSecond = new AtomicLongArray((int) ((length + SECOND - 1) / SECOND));
        var missing = new AtomicLong(enough);
        var done = new CountDownLatch(1);
        LongConsumer onGranted = elapsed -> {
            perSecond.addAndGet((int) (elapsed / SECOND), permits);
            if (missing.addAndGet(-permits) <= 0) {
                done.countDown();
            }
        };
        for (int i = 0; i < threads; i++) {
            var caller = new Thread(() -> acquireUntil(limiter, permits, start, length, onGranted));
            caller.setDaemon(true);
            caller.start();
        }
        done.await(length - (System.nanoTime() - start), TimeUnit.NANOSECONDS);
        return LongStream.range(0, perSecond.length())
                .mapToObj(second -> perSecond.get((int) second))
                .toList();
    }

    private static void acquireUntil(
            RRateLimiter limiter, long permits, long start, long length, LongConsumer onGranted) {
        try {
            while (true) {
                limiter.acquire(permits);
                long elapsed = System.nanoTime() - start;
                if (elapsed >= length) {
                    return;
                }
                onGranted.accept(elapsed);
            }
        } catch (RuntimeException shutDown) {
            if (System.nanoTime() - start < length) {
                throw shutDown;
            }
        }
    }
}
