package memstore

import (
	"testing"

	"github.com/headgate/headgate/core"
)

func TestAnOpThatIsNotPlainIsLookedAtByCore(t *testing.T) {
	good := takes("key", limit("1/1h"))
	if !quick(&good) {
		t.Error("a Take of one unit is not plain")
	}
	for name, spoil := range map[string]func(*core.Op){
		"verb":        func(op *core.Op) { op.Verb = core.Peek },
		"algorithm":   func(op *core.Op) { op.Limit.Algorithm = core.TokenBucket },
		"no cost":     func(op *core.Op) { op.Cost = 0 },
		"cost":        func(op *core.Op) { op.Cost = -1 },
		"wait":        func(op *core.Op) { op.MaxWait = 1 },
		"at":          func(op *core.Op) { op.At = -1 },
		"reset after": func(op *core.Op) { op.ResetAfter = -1 },
	} {
		bad := good
		spoil(&bad)
		if quick(&bad) {
			t.Errorf("plain in spite of its %s", name)
		}
	}
}
