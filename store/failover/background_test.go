package failover

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackgroundRunsAgainIfAskedDuringARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *background
		runs := 0

		// The first run asks for another while it runs.
		b = newBackground(func(context.Context) bool {
			if runs++; runs == 1 {
				b.arm()
			}
			return false
		}, func() time.Duration { return time.Second })

		// Asking twice before a run is asking once.
		b.arm()
		b.arm()

		time.Sleep(time.Hour)
		synctest.Wait()
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}

		// After close nothing runs any more.
		b.close()
		b.arm()
		time.Sleep(time.Hour)
		synctest.Wait()

		if runs != 2 {
			t.Error("a run after the end")
		}
	})
}
