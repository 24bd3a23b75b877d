package org.acme.locks

import org.redisson.client.codec.StringCodec
import redis.clients.jedis.JedisPool
import java.util.UUID

class DistributedLock(private val pool: JedisPool, private val name: String, private val leaseMs: Long = 30_000) {
    private val owner = UUID.randomUUID().toString() + ":" + Thread.currentThread().id

    companion object {
        private const val LOCK = """
            if (redis.call('exists', KEYS[1]) == 0) then
                redis.call('hincrby', KEYS[1], ARGV[2], 1);
                redis.call('pexpire', KEYS[1], ARGV[1]);
                return nil;
            end;
            return redis.call('pttl', KEYS[1]);
        """
        private const val UNLOCK = """
            if (redis.call('hexists', KEYS[1], ARGV[1]) == 0) then
                return 0;
            end;
            redis.call('del', KEYS[1]);
            return 1;
        """
        private const val RENEW = """
            if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
                redis.call('pexpire', KEYS[1], ARGV[1]);
                return 1;
            end;
            return 0;
        """
    }

    fun tryLock(): Boolean = pool.resource.use { jedis ->
        jedis.eval(LOCK, listOf("{lock:$name}"), listOf(leaseMs.toString(), owner)) == null
    }

    fun unlock(): Boolean = pool.resource.use { jedis ->
        jedis.eval(UNLOCK, listOf("{lock:$name}"), listOf(owner)) == 1L
    }

    fun renew(): Boolean = pool.resource.use { jedis ->
        jedis.eval(RENEW, listOf("{lock:$name}"), listOf(leaseMs.toString(), owner)) == 1L
    }
}
