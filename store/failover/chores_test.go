package failover

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsAskedForDuringATurnGetsOneMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *chores
		turns := 0
		c = newChores(func(context.Context) bool {
			if turns++; turns == 1 {
				c.arm()
			}
			return false
		}, func() time.Duration { return time.Second })
		c.arm()
		c.arm()
		time.Sleep(time.Hour)
		synctest.Wait()
		if turns != 2 {
			t.Errorf("%d turns", turns)
		}
		c.close()
		c.arm()
		time.Sleep(time.Hour)
		synctest.Wait()
		if turns != 2 {
			t.Error("a turn after the end")
		}
	})
}
