package redisstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// More limits than are remembered, and many that share a place.
func TestEveryLimitGetsItsOwnTerms(t *testing.T) {
	var k limits
	for range 2 {
		for quota := range int64(maxLimits + 100) {
			op := core.Op{Limit: core.Limit{Algorithm: core.FixedWindow, Quota: quota + 1, Period: time.Second}}
			got, err := k.of(&op)
			if want := fmt.Sprintf("1000000 %d 0", quota+1); err != nil || got.text != want {
				t.Fatalf("%s: %v, %v, want %s", op.Limit, got, err, want)
			}
		}
	}
	if n := k.size.Load(); n != maxLimits {
		t.Errorf("%d limits are remembered", n)
	}
	if _, err := k.of(&core.Op{Limit: core.Limit{Quota: 1}}); !errors.Is(err, core.ErrOp) {
		t.Errorf("a limit without a period: %v", err)
	}
}
