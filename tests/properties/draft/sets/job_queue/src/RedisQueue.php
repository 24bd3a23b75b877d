<?php

namespace Acme\Queue;

class RedisQueue
{
    protected $redis;
    protected $default;
    protected $retryAfter = 60;
    protected $migrationBatchSize = 100;

    public function __construct($redis, $default = 'default', $retryAfter = 60)
    {
        $this->redis = $redis;
        $this->default = $default;
        $this->retryAfter = $retryAfter;
    }

    public function size($queue = null)
    {
        $queue = $this->getQueue($queue);

        return $this->redis->eval(
            LuaScripts::size(), 3, $queue, $queue.':delayed', $queue.':reserved'
        );
    }

    public function pushRaw($payload, $queue = null)
    {
        return $this->redis->eval(
            LuaScripts::push(), 1, $this->getQueue($queue), $payload
        );
    }

    public function pop($queue = null)
    {
        $this->migrate($prefixed = $this->getQueue($queue));

        return $this->retrieveNextJob($prefixed);
    }

    protected function migrate($queue)
    {
        $this->migrateExpiredJobs($queue.':delayed', $queue);
        $this->migrateExpiredJobs($queue.':reserved', $queue);
    }

    public function migrateExpiredJobs($from, $to)
    {
        return $this->redis->eval(
            LuaScripts::migrateExpiredJobs(), 2, $from, $to, time(), $this->migrationBatchSize
        );
    }

    protected function retrieveNextJob($queue)
    {
        return $this->redis->eval(
            LuaScripts::pop(), 2, $queue, $queue.':reserved', time() + $this->retryAfter
        );
    }

    public function deleteReserved($queue, $job)
    {
        $this->redis->eval(LuaScripts::delete(), 1, $this->getQueue($queue).':reserved', $job);
    }

    public function deleteAndRelease($queue, $job, $delay)
    {
        $queue = $this->getQueue($queue);

        $this->redis->eval(
            LuaScripts::release(), 2, $queue.':delayed', $queue.':reserved', $job, time() + $delay
        );
    }

    public function getQueue($queue)
    {
        return 'queues:{'.($queue ?: $this->default).'}';
    }
}
