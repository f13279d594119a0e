package limiter_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
)

// Two limiters share no count, and each address has one of its own.
func TestPerIPCountsByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := limiter.PerIP("2/1m"), limiter.PerIP("2/1m")
		from := func(l *limiter.Limiter, peer string) int {
			d := l.Admit(&test.Request{Peer: peer})
			defer d.Done(200)
			return d.Status()
		}

		for _, row := range []struct {
			l    *limiter.Limiter
			peer string
			want int
		}{
			// The port does not count, and neither does what the other limiter has admitted.
			{a, "192.0.2.1:1", 0}, {a, "192.0.2.1:2", 0}, {a, "192.0.2.1:3", 429},
			{a, "192.0.2.2:1", 0}, {b, "192.0.2.1:4", 0},
		} {
			if got := from(row.l, row.peer); got != row.want {
				t.Errorf("%s: %d, want %d", row.peer, got, row.want)
			}
		}

		time.Sleep(30 * time.Second)
		// One of two units has come back.
		if got := from(a, "192.0.2.1:5"); got != 0 {
			t.Errorf("half a period later: %d", got)
		}
	})
}

func TestPerIPNamesAMistake(t *testing.T) {
	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(error).Error(), `limiter: PerIP: limit "100": `) {
			t.Errorf("panic %v", v)
		}
	}()
	limiter.PerIP("100")
}
