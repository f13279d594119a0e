package policy

import (
	"crypto/rand"
	"os"
	"strings"
)

// maxInstance is the most bytes of an instance's name.
const maxInstance = 128

// newInstance returns a name for this process: the host and eight random letters
// and digits.
func newInstance() string {
	host, err := os.Hostname()
	if err != nil || host == "" || !isPrintable(host) {
		host = "host"
	}
	return host[:min(len(host), 100)] + "-" + strings.ToLower(rand.Text()[:8])
}

// isPrintable reports whether s is printable ASCII without a space.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
