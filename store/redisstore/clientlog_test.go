package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
)

func TestClientLoggerSaysEachKindOfLineOnceInTenSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var out test.Log

		plain := slog.New(slog.NewTextHandler(&out,
			&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))
		c := NewClientLogger(plain)

		// A thousand lines of one kind and one line of another.
		for n := range 25 { // seconds
			for range 40 {
				c.Printf(t.Context(), "redis: failed to dial after %d attempts: %v", 5, "refused\n")
			}
			if n == 3 {
				c.Printf(t.Context(), "sentinel: new master=%q", "m")
			}
			time.Sleep(time.Second)
		}

		// The first line of a kind is said at once, and then one for each ten seconds with the
		// number since.
		const dial = `level=WARN msg="headgate: go-redis says" text="redis: failed to dial after 5 attempts: refused\n" times=`
		want := dial + "1\n" +
			`level=WARN msg="headgate: go-redis says" text="sentinel: new master=\"m\"" times=1` + "\n" + dial +
			"400\n" + dial + "400\n"

		if got := out.String(); got != want {
			t.Errorf("the log is\n%swant\n%s", got, want)
		}
	})
}

// dialling counts the dials of a client. Those of a store beside it pass no hook.
type dialling struct{ n atomic.Int64 }

func (d *dialling) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d.n.Add(1)
		return next(ctx, network, addr)
	}
}
func (*dialling) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (*dialling) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// By itself a client dials for each call, five times, and then says a line. The store does not
// use it while the server cannot be dialled. So the line is said once, and the client does not
// begin to dial once a second only.
func TestClientDialsAServerThatRefusesOnlyForTheFirstCall(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, client := &doorman{refuses: true}, new(dialling)
		c := clients["one server"](d.dial)
		c.AddHook(client)
		s := MustNew(c, Options{})
		s.connector.dials.proven.Store(true)
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(ms) {
			if _, err := takeOne(t.Context(), s, "k"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Error(err)
			}
		}
		if n := client.n.Load(); n != 5 {
			t.Errorf("the client dialled %d times, want 5", n)
		}
		time.Sleep(time.Minute)
		c.Close()
	})
}
