package readme

import (
	"testing"

	"github.com/headgate/headgate/core"
)

// checkLimit wants the text to be what a limit prints, so that people who copy
// it see it again.
func checkLimit(t *testing.T, text string) {
	t.Helper()
	l, err := core.ParseLimit(text)
	if err != nil {
		t.Error(err)
	} else if l.String() != text {
		t.Errorf("%q prints as %q", text, l)
	}
}
