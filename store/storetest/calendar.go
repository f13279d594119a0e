// This file is about limits with a calendar.

package storetest

import (
	"time"

	"github.com/headgate/headgate/core"
)

// periodOf returns the period of a limit, or about the length of its windows.
func periodOf(l *core.Limit) time.Duration {
	if w := l.Windows(Epoch); w != nil {
		return time.Duration(w[2]-w[1]) * time.Microsecond
	}
	return l.Period
}
