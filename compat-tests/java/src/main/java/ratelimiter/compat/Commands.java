package ratelimiter.compat;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateIntervalUnit;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.api.ratelimiter.RateLimiterArgs;

/** The commands, each one call of Redisson. Times are milliseconds; {@code -} stands for what is not given. */
final class Commands {
    private final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();

    List<?> run(String command, String[] args) throws Exception {
        switch (command) {
            case "ping":
                return List.of("pong");
            case "open": // CLIENT default|single|cluster URL[,URL…] [option=value…]
                clients.put(args[0], Redisson.create(Connection.config(args)));
                return List.of();
            case "close": // CLIENT
                clients.remove(args[0]).shutdown(0, 2, TimeUnit.SECONDS);
                return List.of();
            case "id": // CLIENT
                return List.of(client(args[0]).getId());
            case "backlog": // CLIENT NAME threads permits durationMs enough
                return Backlog.run(
                        client(args[0]).getRateLimiter(args[1]),
                        Integer.parseInt(args[2]),
                        Long.parseLong(args[3]),
                        Duration.ofMillis(Long.parseLong(args[4])),
                        Long.parseLong(args[5]));
            case "load": // CLIENT NAME threads permits durationMs try|wait
                return Load.run(
                        client(args[0]).getRateLimiter(args[1]),
                        Integer.parseInt(args[2]),
                        Long.parseLong(args[3]),
                        Duration.ofMillis(Long.parseLong(args[4])),
                        args[5].equals("wait"));
            default: // CLIENT NAME …
                RRateLimiter limiter = client(args[0]).getRateLimiter(args[1]);
                return onLimiter(limiter, command, new Arguments(args, 2));
        }
    }

    private RedissonClient client(String handle) {
        RedissonClient client = clients.get(handle);
        if (client == null) {
            throw new IllegalStateException("no client " + handle + " is open");
        }
        return client;
    }

    private static List<?> onLimiter(RRateLimiter limiter, String command, Arguments args) {
        switch (command) {
            case "trySetRate": // type rate interval [keepAlive]
                return List.of(
                        args.count() < 4
                                ? limiter.trySetRate(
                                        args.type(), args.number(), args.number(), RateIntervalUnit.MILLISECONDS)
                                : limiter.trySetRate(args.type(), args.number(), args.millis(), args.millis()));
            case "setRate": // type rate interval [keepAlive]
                if (args.count() < 4) {
                    limiter.setRate(args.type(), args.number(), args.number(), RateIntervalUnit.MILLISECONDS);
                } else {
                    limiter.setRate(args.type(), args.number(), args.millis(), args.millis());
                }
                return List.of();
            case "setRateArgs": // type rate interval keepAlive|- keepState|-
                limiter.setRate(rateLimiterArgs(args));
                return List.of();
            case "updateRate": // type rate interval keepAlive|- keepState|-
                return List.of(limiter.updateRate(rateLimiterArgs(args)));

            case "tryAcquire": // [permits]
                return List.of(args.count() == 0 ? limiter.tryAcquire() : limiter.tryAcquire(args.number()));
            case "tryAcquireTimeout": // permits timeout
                return List.of(limiter.tryAcquire(args.number(), args.number(), TimeUnit.MILLISECONDS));
            case "acquire": // [permits]
                if (args.count() == 0) {
                    limiter.acquire();
                } else {
                    limiter.acquire(args.number());
                }
                return List.of();
            case "release": // permits
                limiter.release(args.number());
                return List.of();
            case "availablePermits":
                return List.of(limiter.availablePermits());
            case "getConfig": {
                var config = limiter.getConfig();
                return List.of(config.getRateType(), config.getRate(), config.getRateInterval());
            }

            case "isExists":
                return List.of(limiter.isExists());
            case "delete":
                return List.of(limiter.delete());
            case "rename": // newName
                limiter.rename(args.text());
                return List.of();
            case "expire": // timeToLive
                return List.of(limiter.expire(args.millis()));
            case "expireAt": // epoch
                return List.of(limiter.expire(Instant.ofEpochMilli(args.number())));
            case "expireIfSet": // timeToLive
                return List.of(limiter.expireIfSet(args.millis()));
            case "expireIfNotSet": // timeToLive
                return List.of(limiter.expireIfNotSet(args.millis()));
            case "expireIfGreater": // timeToLive
                return List.of(limiter.expireIfGreater(args.millis()));
            case "expireIfLess": // timeToLive
                return List.of(limiter.expireIfLess(args.millis()));
            case "clearExpire":
                return List.of(limiter.clearExpire());
            case "remainTimeToLive":
                return List.of(limiter.remainTimeToLive());
            default:
                throw new IllegalArgumentException("no command " + command);
        }
    }

    private static RateLimiterArgs rateLimiterArgs(Arguments args) {
        var rate = RateLimiterArgs.of(args.type(), args.number(), args.millis());
        if (args.isGiven()) {
            rate = rate.keepAliveTime(args.millis());
        }
        if (args.isGiven()) {
            rate = rate.keepState(args.bool());
        }
        return rate;
    }

    /** Reads arguments one after the other. */
    private static final class Arguments {
        private final String[] args;
        private final int first;
        private int next;

        Arguments(String[] args, int first) {
            this.args = args;
            this.first = first;
            this.next = first;
        }

        int count() {
            return args.length - first;
        }

        /** Whether the next argument is more than a {@code -}, which this skips. */
        boolean isGiven() {
            if (!args[next].equals("-")) {
                return true;
            }
            next++;
            return false;
        }

        String text() {
            return args[next++];
        }

        long number() {
            return Long.parseLong(args[next++]);
        }

        Duration millis() {
            return Duration.ofMillis(number());
        }

        boolean bool() {
            return Boolean.parseBoolean(args[next++]);
        }

        RateType type() {
            return RateType.valueOf(args[next++]);
        }
    }
}
