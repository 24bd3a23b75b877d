<?php
declare(strict_types=1);

namespace Acme\Throttle;

use Predis\ClientInterface;

final class SlidingLimiter
{
    public function __construct(
        private ClientInterface $redis,
        private int $limit = 5,
        private int $windowMs = 10_000,
    ) {
    }

    /** [allowed (0 or 1), how many are left] */
    public function hit(string $who, float $now, string $nonce): array
    {
        return $this->redis->eval(self::hitScript(), 1, "throttle:{$who}", (int) ($now * 1000), $this->windowMs, $this->limit, $nonce);
    }

    public function reset(string $who): int
    {
        return $this->redis->eval(self::resetScript(), 1, "throttle:{$who}");
    }

    private static function hitScript(): string
    {
        return <<<'LUA'
            local now = tonumber(ARGV[1])
            local window = tonumber(ARGV[2])
            local limit = tonumber(ARGV[3])
            redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
            local used = redis.call('ZCARD', KEYS[1])
            if used < limit then
                redis.call('ZADD', KEYS[1], now, ARGV[4])
                redis.call('PEXPIRE', KEYS[1], window)
                return {1, limit - used - 1}
            end
            return {0, 0}
            LUA;
    }

    private static function resetScript(): string
    {
        return <<<'LUA'
            return redis.call('DEL', KEYS[1])
            LUA;
    }
}
