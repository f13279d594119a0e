// This file applies Rule.Access, and answers those whom it denies.

package limiter

import (
	"fmt"
)

// denialTitles are the reason phrases of the statuses for a caller who is denied.
var denialTitles = map[int]string{forbidden: "Forbidden", tooManyRequests: "Too Many Requests"}

func checkDenyStatus(status int) error {
	if status != 0 && denialTitles[status] == "" {
		return fmt.Errorf("DenyStatus: %d is not %d or %d", status, forbidden, tooManyRequests)
	}
	return nil
}

// appendDenied writes a problem without a registered type, because there is no quota that
// it could be about.
func (a *Admission) appendDenied(b []byte) []byte {
	status := a.Status()
	b = fmt.Appendf(b, `{"type":"about:blank","title":"%s","status":%d,"violated-policies":`, denialTitles[status], status)
	return append(a.appendViolated(b), '}')
}
