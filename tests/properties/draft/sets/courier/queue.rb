# frozen_string_literal: true
module Courier
  class Queue
    ADD = <<~LUA
      local jobs, data = KEYS[1], KEYS[2]
      if redis.call("hexists", data, ARGV[1]) == 1 then
        return 0
      end
      redis.call("hset", data, ARGV[1], ARGV[2])
      redis.call("lpush", jobs, ARGV[1])
      return 1
    LUA

    FETCH = <<~LUA
      local id = redis.call("rpop", KEYS[1])
      if not id then
        return false
      end
      redis.call("zadd", KEYS[2], ARGV[1], id)
      return {id, redis.call("hget", KEYS[3], id)}
    LUA

    ACK = <<~LUA
      redis.call("zrem", KEYS[1], ARGV[1])
      redis.call("hdel", KEYS[2], ARGV[1])
      return 1
    LUA

    REQUEUE_STALLED = <<~LUA
      local stalled = redis.call("zrangebyscore", KEYS[1], "-inf", ARGV[1])
      for _, id in ipairs(stalled) do
        redis.call("zrem", KEYS[1], id)
        redis.call("rpush", KEYS[2], id)
      end
      return #stalled
    LUA

    def initialize(redis, name)
      @redis = redis
      @name = name
    end

    def add(id, payload)
      @redis.call("EVAL", ADD, 2, "{#{@name}}:jobs", "{#{@name}}:data", id, payload)
    end

    def fetch(timeout: 30)
      @redis.call("EVAL", FETCH, 3, "{#{@name}}:jobs", "{#{@name}}:running", "{#{@name}}:data", Time.now.to_i + timeout)
    end

    def ack(id)
      @redis.call("EVAL", ACK, 2, "{#{@name}}:running", "{#{@name}}:data", id)
    end

    def requeue_stalled
      @redis.call("EVAL", REQUEUE_STALLED, 2, "{#{@name}}:running", "{#{@name}}:jobs", Time.now.to_i)
    end
  end
end
