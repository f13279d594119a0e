package readme

import (
	"testing"

	"github.com/headgate/headgate/core"
)

// checkLimit checks that the text is the form in which the limit prints itself.
func checkLimit(t *testing.T, text string) {
	t.Helper()
	l, err := core.ParseLimit(text)
	if err != nil {
		t.Error(err)
	} else if l.String() != text {
		t.Errorf("%q prints as %q", text, l)
	}
}
