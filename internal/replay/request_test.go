package replay

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/accesslog"
)

// The name of a user is a key of bounded length, and no two names have the same.
func TestKeysOfUsersAreBounded(t *testing.T) {
	keyOf := func(name string) string {
		key, ok := userKey(&request{entry: &accesslog.Entry{User: name}})
		if !ok {
			t.Errorf("%.70q has no key", name)
		}
		return key
	}

	// A name of 64 bytes is short enough.
	short, long := strings.Repeat("a", 64), strings.Repeat("a", 60_000)
	for _, name := range []string{"", "ada", short} {
		if got := keyOf(name); got != name {
			t.Errorf("the key of %q is %q", name, got)
		}
	}

	for _, name := range []string{short + "a", long, long + "a"} {
		if got := keyOf(name); len(got) != 29 || !strings.HasPrefix(got, "sha256:") || got == keyOf(name+"b") ||
			keyOf(got) == got {
			t.Errorf("the key of %d bytes is %.40q", len(name), got)
		}
	}
}
