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
		b = newBackground(func(context.Context) bool {
			if runs++; runs == 1 {
				b.arm()
			}
			return false
		}, func() time.Duration { return time.Second })
		b.arm()
		b.arm()
		time.Sleep(time.Hour)
		synctest.Wait()
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
		b.close()
		b.arm()
		time.Sleep(time.Hour)
		synctest.Wait()
		if runs != 2 {
			t.Error("a run after the end")
		}
	})
}
