package feed

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

const (
	entriesKey = "local entries, offsets = KEYS[1], KEYS[2]\n"

	readOffset = "local offset = tonumber(redis.call('HGET', offsets, ARGV[1]) or '0')\n"

	// publishLua appends one message and answers with its number.
	publishLua = "local entries, counter = KEYS[1], KEYS[2]\n" +
		"local n = redis.call('INCR', counter)\n" +
		"redis.call('ZADD', entries, n, n .. ':' .. ARGV[1])\n" +
		"return n\n"

	// fetchLua gives a group what it has not confirmed, oldest first: number, text, number, text.
	fetchLua = entriesKey + readOffset +
		"local reply = {}\n" +
		"local raw = redis.call('ZRANGEBYSCORE', entries, '(' .. offset, '+inf', 'LIMIT', 0, ARGV[2])\n" +
		"for i = 1, #raw do\n" +
		"  local colon = string.find(raw[i], ':', 1, true)\n" +
		"  reply[#reply + 1] = tonumber(string.sub(raw[i], 1, colon - 1))\n" +
		"  reply[#reply + 1] = string.sub(raw[i], colon + 1)\n" +
		"end\n" +
		"return reply\n"

	// commitLua moves a group's offset, never back.
	commitLua = entriesKey + readOffset +
		"local upto = tonumber(ARGV[2])\n" +
		"if upto <= offset then\n" +
		"  return offset\n" +
		"end\n" +
		"redis.call('HSET', offsets, ARGV[1], upto)\n" +
		"return upto\n"
)

var (
	publish = redis.NewScript(publishLua)
	fetch   = redis.NewScript(fetchLua)
	commit  = redis.NewScript(commitLua)
)

type Feed struct {
	rdb   redis.UniversalClient
	topic string
}

func New(rdb redis.UniversalClient, topic string) *Feed {
	return &Feed{rdb: rdb, topic: topic}
}

func (f *Feed) Publish(ctx context.Context, text string) (int64, error) {
	return publish.Run(ctx, f.rdb, []string{"feed:{" + f.topic + "}:entries", "feed:{" + f.topic + "}:last"}, text).Int64()
}

func (f *Feed) Fetch(ctx context.Context, group string, count int) ([]interface{}, error) {
	return fetch.Run(ctx, f.rdb, []string{"feed:{" + f.topic + "}:entries", "feed:{" + f.topic + "}:offsets"}, group, strconv.Itoa(count)).Slice()
}

func (f *Feed) Commit(ctx context.Context, group string, upto int64) (int64, error) {
	return commit.Run(ctx, f.rdb, []string{"feed:{" + f.topic + "}:entries", "feed:{" + f.topic + "}:offsets"}, group, upto).Int64()
}
