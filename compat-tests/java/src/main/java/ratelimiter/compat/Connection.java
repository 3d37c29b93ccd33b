package ratelimiter.compat;

import org.redisson.config.BaseConfig;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;

/** A Redisson configuration: its defaults, or one that starts quickly and holds few threads and connections. */
final class Connection {
    private Connection() {}

    /** From {@code CLIENT default|single|cluster URL[,URL…] [option=value…]}; the defaults take no options. */
    static Config config(String[] args) {
        if (args[1].equals("default")) {
            Config config = new Config();
            config.useSingleServer().setAddress(args[2]);
            return config;
        }
        Config config = new Config().setThreads(2).setNettyThreads(2);
        BaseConfig<?> server = args[1].equals("cluster") ? cluster(config, args[2]) : single(config, args[2]);
        server.setConnectTimeout(60_000); // the machine may be busy, and several JVMs start at once
        for (int i = 3; i < args.length; i++) {
            String[] option = args[i].split("=", 2);
            int value = Integer.parseInt(option[1]);
            switch (option[0]) {
                case "timeout" -> server.setTimeout(value);
                case "retryAttempts" -> server.setRetryAttempts(value);
                case "retryInterval" -> server.setRetryInterval(value);
                default -> throw new IllegalArgumentException("no option " + option[0]);
            }
        }
        return config;
    }

    private static BaseConfig<?> single(Config config, String url) {
        return config.useSingleServer()
                .setAddress(url)
                .setDnsMonitoringInterval(-1)
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(8)
                .setSubscriptionConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionPoolSize(2);
    }

    private static BaseConfig<?> cluster(Config config, String urls) {
        return config.useClusterServers()
                .addNodeAddress(urls.split(","))
                // A replica may lag behind; what one call wrote, the next shall read.
                .setReadMode(ReadMode.MASTER)
                .setDnsMonitoringInterval(-1)
                .setMasterConnectionMinimumIdleSize(1)
                .setMasterConnectionPoolSize(8)
                .setSlaveConnectionMinimumIdleSize(1)
                .setSlaveConnectionPoolSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionPoolSize(2);
    }
}
