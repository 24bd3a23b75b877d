using StackExchange.Redis;

namespace Acme.Throttling
{
    public sealed class SlidingWindowLimiter
    {
        private const string AcquireScript = @"
            local key = KEYS[1]
            local now = tonumber(ARGV[1])
            local window = tonumber(ARGV[2])
            local limit = tonumber(ARGV[3])
            redis.call('ZREMRANGEBYSCORE', key, 0, now - window)
            local count = redis.call('ZCARD', key)
            if count >= limit then
                return 0
            end
            redis.call('ZADD', key, now, ARGV[4])
            redis.call('PEXPIRE', key, window)
            return 1";

        private readonly IDatabase _db;
        private readonly int _limit;
        private readonly TimeSpan _window;

        public SlidingWindowLimiter(IDatabase db, int limit, TimeSpan window)
        {
            _db = db; _limit = limit; _window = window;
        }

        public async Task<bool> TryAcquireAsync(string client)
        {
            var result = await _db.ScriptEvaluateAsync(AcquireScript,
                new RedisKey[] { $"rate:{{{client}}}" },
                new RedisValue[] { DateTimeOffset.UtcNow.ToUnixTimeMilliseconds(), (long)_window.TotalMilliseconds, _limit, Guid.NewGuid().ToString("N") });
            return (int)result == 1;
        }
    }
}
