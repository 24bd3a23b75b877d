package com.acme.mqtt.store;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import redis.clients.jedis.JedisCluster;

/** Keeps what waits for persistent clients that are away. */
public class DeviceMsgStore {

    private static final String SAVE_MESSAGES = """
            -- KEYS: queue (sorted set, by sequence), bodies (hash), state (hash)
            -- ARGV: now in ms, most messages that may wait, messages as JSON
            local now = tonumber(ARGV[1])
            local limit = tonumber(ARGV[2])
            local messages = cjson.decode(ARGV[3])
            local last = tonumber(redis.call('HGET', KEYS[3], 'last') or '0')
            local sequence = tonumber(redis.call('HGET', KEYS[3], 'sequence') or '0')
            local size = redis.call('ZCARD', KEYS[1])
            local ids = {}
            local scored = {}
            local bodies = {}
            for i, message in ipairs(messages) do
                repeat
                    last = last % 65535 + 1
                until redis.call('HEXISTS', KEYS[2], last) == 0
                sequence = sequence + 1
                if message.expiry then
                    message.deadline = now + message.expiry
                end
                message.packetId = last
                message.sequence = sequence
                ids[i] = last
                scored[#scored + 1] = sequence
                scored[#scored + 1] = last
                bodies[#bodies + 1] = last
                bodies[#bodies + 1] = cjson.encode(message)
            end
            redis.call('HSET', KEYS[3], 'last', last, 'sequence', sequence)
            redis.call('HSET', KEYS[2], unpack(bodies))
            redis.call('ZADD', KEYS[1], unpack(scored))
            local surplus = size + #messages - limit
            if surplus > 0 then
                local oldest = redis.call('ZRANGE', KEYS[1], 0, surplus - 1)
                redis.call('ZREM', KEYS[1], unpack(oldest))
                redis.call('HDEL', KEYS[2], unpack(oldest))
            end
            return ids
            """;

    private static final String GET_MESSAGES = """
            local now = tonumber(ARGV[1])
            local ids = redis.call('ZRANGE', KEYS[1], 0, -1)
            local found = {}
            for _, id in ipairs(ids) do
                if #found == tonumber(ARGV[2]) then
                    break
                end
                local body = redis.call('HGET', KEYS[2], id)
                if body then
                    local deadline = cjson.decode(body).deadline
                    if not deadline or deadline > now then
                        found[#found + 1] = body
                    end
                end
            end
            return found
            """;

    private static final String REMOVE_MESSAGE = """
            redis.call('ZREM', KEYS[1], ARGV[1])
            return redis.call('HDEL', KEYS[2], ARGV[1])
            """;

    private static final String REMOVE_ALL = "return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])";

    private final JedisCluster jedis;
    private final ObjectMapper mapper = new ObjectMapper();
    private final int messagesLimit;

    public DeviceMsgStore(JedisCluster jedis, int messagesLimit) {
        this.jedis = jedis;
        this.messagesLimit = messagesLimit;
    }

    @SuppressWarnings("unchecked")
    public List<Long> save(String clientId, List<DeviceMsg> messages) throws JsonProcessingException {
        return (List<Long>) jedis.eval(
                SAVE_MESSAGES,
                List.of(queueKey(clientId), bodiesKey(clientId), stateKey(clientId)),
                List.of(
                        String.valueOf(System.currentTimeMillis()),
                        String.valueOf(messagesLimit),
                        mapper.writeValueAsString(messages)));
    }

    @SuppressWarnings("unchecked")
    public List<DeviceMsg> find(String clientId, int count) throws JsonProcessingException {
        List<String> bodies = (List<String>) jedis.eval(
                GET_MESSAGES,
                List.of(queueKey(clientId), bodiesKey(clientId)),
                List.of(String.valueOf(System.currentTimeMillis()), String.valueOf(count)));
        List<DeviceMsg> found = new ArrayList<>();
        for (String body : bodies) {
            found.add(mapper.readValue(body, DeviceMsg.class));
        }
        return found;
    }

    public void remove(String clientId, int packetId) {
        jedis.eval(REMOVE_MESSAGE, List.of(queueKey(clientId), bodiesKey(clientId)), List.of(String.valueOf(packetId)));
    }

    public void removeAll(String clientId) {
        jedis.eval(REMOVE_ALL, List.of(queueKey(clientId), bodiesKey(clientId), stateKey(clientId)), List.of());
    }

    private static String queueKey(String clientId) {
        return "{" + clientId + "}:queue";
    }

    private static String bodiesKey(String clientId) {
        return "{" + clientId + "}:bodies";
    }

    private static String stateKey(String clientId) {
        return "{" + clientId + "}:state";
    }
}
