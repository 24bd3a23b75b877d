// Package lease keeps leases on resources, with fencing tokens.
package lease

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

var ErrNotHeld = errors.New("lease: not held")

const (
	obtainSrc = `
-- Obtain: KEYS[1] the lease, KEYS[2] the counter of tokens
if redis.call("exists", KEYS[1]) == 1 then
	return 0
end
local token = redis.call("incr", KEYS[2])
redis.call("set", KEYS[1], token, "px", ARGV[1])
return token
`

	refreshSrc = `
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("pexpire", KEYS[1], ARGV[2])
else
	return 0
end
`

	releaseSrc = `
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("del", KEYS[1])
else
	return 0
end
`
)

var (
	obtainScript  = redis.NewScript(obtainSrc)
	refreshScript = redis.NewScript(refreshSrc)
	releaseScript = redis.NewScript(releaseSrc)
)

type Lease struct {
	client redis.Scripter
	name   string
	token  int64
}

func leaseKey(name string) string { return "lease:{" + name + "}" }

func counterKey(name string) string { return "lease:{" + name + "}:token" }

// Obtain takes the lease on a name for ttl.
func Obtain(ctx context.Context, client redis.Scripter, name string, ttl time.Duration) (*Lease, error) {
	token, err := obtainScript.Run(ctx, client, []string{leaseKey(name), counterKey(name)}, ttl.Milliseconds()).Int64()
	if err != nil {
		return nil, err
	}
	if token == 0 {
		return nil, ErrNotHeld
	}
	return &Lease{client: client, name: name, token: token}, nil
}

// Refresh extends the lease.
func (l *Lease) Refresh(ctx context.Context, ttl time.Duration) error {
	ok, err := refreshScript.Run(ctx, l.client, []string{leaseKey(l.name)}, l.token, ttl.Milliseconds()).Bool()
	if err != nil {
		return err
	}
	if !ok {
		return ErrNotHeld
	}
	return nil
}

// Release gives the lease back.
func (l *Lease) Release(ctx context.Context) error {
	n, err := releaseScript.Run(ctx, l.client, []string{leaseKey(l.name)}, l.token).Int()
	if err != nil {
		return err
	}
	if n == 0 {
		return ErrNotHeld
	}
	return nil
}
