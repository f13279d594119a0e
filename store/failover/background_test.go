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
		turns := 0
		b = newBackground(func(context.Context) bool {
			if turns++; turns == 1 {
				b.arm()
			}
			return false
		}, func() time.Duration { return time.Second })
		b.arm()
		b.arm()
		time.Sleep(time.Hour)
		synctest.Wait()
		if turns != 2 {
			t.Errorf("%d turns", turns)
		}
		b.close()
		b.arm()
		time.Sleep(time.Hour)
		synctest.Wait()
		if turns != 2 {
			t.Error("a turn after the end")
		}
	})
}
