package com.acme.coordination;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;
import org.springframework.data.redis.core.script.RedisScript;

/** A lock that its holder may enter again; it is free when it was left as often as it was entered. */
public final class ReentrantRedisLock {

    private static final String PREFIX = "acme:mutex:";

    /** @return nil when entered, else the milliseconds that the other holder has left. */
    private static final RedisScript<Long> ENTER = new DefaultRedisScript<>("""
            local holder = redis.call('hget', KEYS[1], 'holder')
            if (not holder) or holder == ARGV[2] then
                redis.call('hset', KEYS[1], 'holder', ARGV[2])
                redis.call('hincrby', KEYS[1], 'depth', 1)
                redis.call('pexpire', KEYS[1], ARGV[1])
                return nil
            end
            return redis.call('pttl', KEYS[1])
            """, Long.class);

    /** @return nil when not ours, 0 when still held, 1 when free. */
    private static final RedisScript<Long> LEAVE = new DefaultRedisScript<>("""
            if redis.call('hget', KEYS[1], 'holder') ~= ARGV[2] then
                return nil
            end
            local depth = redis.call('hincrby', KEYS[1], 'depth', -1)
            if depth > 0 then
                redis.call('pexpire', KEYS[1], ARGV[1])
                return 0
            end
            redis.call('del', KEYS[1])
            return 1
            """, Long.class);

    private static final RedisScript<Long> PROLONG = new DefaultRedisScript<>("""
            if redis.call('hget', KEYS[1], 'holder') == ARGV[2] then
                return redis.call('pexpire', KEYS[1], ARGV[1])
            end
            return 0
            """, Long.class);

    private final StringRedisTemplate redis;
    private final Duration lease;

    public ReentrantRedisLock(StringRedisTemplate redis, Duration lease) {
        this.redis = redis;
        this.lease = lease;
    }

    public boolean tryEnter(String resource, String owner) {
        Long left = redis.execute(ENTER, List.of(PREFIX + resource), String.valueOf(lease.toMillis()), owner);
        return left == null;
    }

    public void leave(String resource, String owner) {
        Long state = redis.execute(LEAVE, List.of(PREFIX + resource), String.valueOf(lease.toMillis()), owner);
        if (state == null) {
            throw new IllegalMonitorStateException(resource + " is not held by " + owner);
        }
    }

    public boolean prolong(String resource, String owner) {
        Long done = redis.execute(PROLONG, List.of(PREFIX + resource), String.valueOf(lease.toMillis()), owner);
        return done != null && done == 1L;
    }
}
