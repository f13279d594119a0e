// This file lets a store use a client that is not one of go-redis's.

package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
)

// Client is what a store needs of a client that is not one of go-redis's; package
// rueidisstore has one for rueidis. It is safe for concurrent use.
//
// Commands and errors are those of go-redis: an error that a server replies implements
// [redis.Error], and that of a dial is a *[net.OpError] whose Op is "dial".
type Client interface {
	// Process sends the command to the server that has its first key, and puts the reply or the
	// error into it. It returns the error. The first key of a script call is its fourth
	// argument, and that of any other command its second; TIME, INFO and scripts without keys go
	// to any server. It sends the command once: again only if the server has sent it elsewhere.
	// It returns at the deadline of ctx.
	Process(ctx context.Context, cmd redis.Cmder) error

	// ProcessAll is Process for many commands, in few round trips. It returns the first error.
	ProcessAll(ctx context.Context, cmds []redis.Cmder) error

	// Connect connects to the server with an address that Shard has returned, or to each server
	// that decides if it is "", so that n commands at a time find a connection, until ctx
	// ends. It returns for how many one is ready, and why that is not for all.
	Connect(ctx context.Context, addr string, n int) (ready int, err error)

	// Each calls f for each server that decides, with a function that sends it a command, and
	// returns the first error.
	Each(ctx context.Context, f func(ctx context.Context, send func(context.Context, redis.Cmder) error) error) error

	// Shard returns the address of the server that has a key, or all keys with a hash tag, in a
	// Cluster. It is "" elsewhere, and while it is not known. It does not wait.
	Shard(keyOrTag string) string

	// Kind returns "standalone", "sentinel" or "cluster".
	Kind() string
}

// Kinds of a client.
const (
	kindStandalone = "standalone"
	kindCluster    = "cluster" // it spreads keys over servers by their hash tags
)

// foreign is a Client in the form of go-redis's. The store calls no other method of it than
// Process.
type foreign struct {
	redis.UniversalClient
	own Client
}

// Process sends the command.
func (f *foreign) Process(ctx context.Context, cmd redis.Cmder) error { return f.own.Process(ctx, cmd) }

// foreignOf returns the Client that is no client of go-redis's, or nil.
func foreignOf(client redis.UniversalClient) Client {
	if f, ok := client.(*foreign); ok {
		return f.own
	}
	return nil
}

// traitsOf returns the traits of a client.
func traitsOf(client redis.UniversalClient) rediscall.Traits {
	if own := foreignOf(client); own != nil {
		return rediscall.Traits{Sharded: own.Kind() == kindCluster, HeedsDeadlines: true}
	}
	return rediscall.TraitsOf(client)
}

// processAll sends the commands in few round trips, and returns the first error.
func processAll(ctx context.Context, client redis.UniversalClient, cmds []redis.Cmder) error {
	if own := foreignOf(client); own != nil {
		return own.ProcessAll(ctx, cmds)
	}

	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, cmd := range cmds {
			_ = p.Process(ctx, cmd) // it only enters the pipeline
		}
		return nil
	})
	return err
}

// deadlineContext is context.WithDeadline without a timer until Done is called. A client that
// reads a reply under the deadline of its connection never calls it.
type deadlineContext struct {
	context.Context // of the caller
	end             time.Time

	mu       sync.Mutex
	timed    context.Context // with a timer, nil until Done is called; guarded by mu
	stop     context.CancelFunc
	canceled bool // guarded by mu
}

// Deadline implements [context.Context].
func (d *deadlineContext) Deadline() (time.Time, bool) { return d.end, true }

// Done implements [context.Context].
func (d *deadlineContext) Done() <-chan struct{} { return d.withTimer().Done() }

// AfterFunc has f called in a goroutine once the context has ended, as [context.AfterFunc] does.
// Without it a context that is derived from this one would take a goroutine.
func (d *deadlineContext) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(d.withTimer(), f)
}

// withTimer returns the context with a timer.
func (d *deadlineContext) withTimer() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.timed == nil {
		d.timed, d.stop = context.WithDeadline(d.Context, d.end)
		if d.canceled {
			d.stop()
		}
	}
	return d.timed
}

// Err implements [context.Context].
func (d *deadlineContext) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.timed != nil {
		return d.timed.Err()
	}
	if err := d.Context.Err(); err != nil {
		return err
	}
	switch {
	case d.canceled:
		return context.Canceled
	case !time.Now().Before(d.end):
		return context.DeadlineExceeded
	}
	return nil
}

// cancel ends the context.
func (d *deadlineContext) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()

	// An error that was seen stays: after the deadline it is that of the deadline.
	d.canceled = time.Now().Before(d.end)
	if d.stop != nil {
		d.stop()
	}
}
