package ratelimiter.compat;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.stream.IntStream;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RedissonClient;

/** Callers that each ask again as soon as they have their answer, and how long each answer took. */
final class Callers {
    private enum Phase {
        WARM_UP,
        MEASURED,
        OVER
    }

    private static final OperatingSystemMXBean PROCESS =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final RedissonClient redisson;
    private final String name;
    private final int limiters;
    private volatile Phase phase = Phase.WARM_UP;

    /** On the limiter {@code name}, or at random on {@code limiters} whose names begin with it. */
    Callers(RedissonClient redisson, String name, int limiters) {
        this.redisson = redisson;
        this.name = name;
        this.limiters = limiters;
    }

    /** Answers the decisions, the grants, and in ns the time they took, p50, p99 and the CPU time of the process. */
    List<Long> run(boolean async, int count, long warmUpMillis, long measuredMillis) throws Exception {
        var callers = IntStream.range(0, count).mapToObj(Caller::new).toList();
        var threads = async ? List.<FutureTask<Void>>of() : start(callers);
        if (async) {
            callers.forEach(Caller::askNext);
        }

        Thread.sleep(warmUpMillis);
        long cpu = PROCESS.getProcessCpuTime();
        long start = System.nanoTime();
        phase = Phase.MEASURED;
        Thread.sleep(measuredMillis);
        phase = Phase.OVER;
        long elapsed = System.nanoTime() - start;
        cpu = PROCESS.getProcessCpuTime() - cpu;

        for (var thread : threads) {
            thread.get();
        }
        for (Caller caller : callers) {
            caller.done.await();
            if (caller.failure != null) {
                throw new ExecutionException(caller.failure);
            }
        }
        int[] nanos = callers.stream().flatMapToInt(Caller::nanos).sorted().toArray();
        long granted = callers.stream().mapToLong(caller -> caller.granted).sum();
        return List.of((long) nanos.length, granted, elapsed, at(nanos, 50), at(nanos, 99), cpu);
    }

    private static List<FutureTask<Void>> start(List<Caller> callers) {
        var tasks = callers.stream()
                .map(caller -> new FutureTask<Void>(caller::askAgainAndAgain, null))
                .toList();
        tasks.forEach(task -> new Thread(task).start());
        return tasks;
    }

    private static long at(int[] sorted, int percent) {
        return sorted.length == 0 ? 0 : sorted[(int) ((long) (sorted.length - 1) * percent / 100)];
    }

    private final class Caller {
        private final CountDownLatch done = new CountDownLatch(1);
        private final SplittableRandom random;
        private final RRateLimiter only;
        private int[] nanos = new int[1024];
        private int count;
        private long granted;
        private volatile Throwable failure;

        Caller(int seed) {
            random = new SplittableRandom(seed);
            only = limiters == 1 ? redisson.getRateLimiter(name) : null;
        }

        private RRateLimiter limiter() {
            return only != null ? only : redisson.getRateLimiter(name + ":" + random.nextInt(limiters));
        }

        /** The sync API: this thread is the caller. */
        void askAgainAndAgain() {
            try {
                while (phase != Phase.OVER) {
                    long asked = System.nanoTime();
                    note(asked, limiter().tryAcquire(1));
                }
            } finally {
                done.countDown();
            }
        }

        /** The async API: each answer asks the next. */
        void askNext() {
            if (phase == Phase.OVER) {
                done.countDown();
                return;
            }
            long asked = System.nanoTime();
            limiter().tryAcquireAsync(1).whenComplete((granted, failed) -> {
                if (failed != null) {
                    failure = failed;
                    done.countDown();
                    return;
                }
                note(asked, granted);
                askNext();
            });
        }

        private void note(long asked, boolean isGranted) {
            if (phase != Phase.MEASURED) {
                return;
            }
            if (count == nanos.length) {
                nanos = Arrays.copyOf(nanos, count * 2);
            }
            nanos[count++] = (int) Math.min(System.nanoTime() - asked, Integer.MAX_VALUE);
            if (isGranted) {
                granted++;
            }
        }

        IntStream nanos() {
            return Arrays.stream(nanos, 0, count);
        }
    }
}
