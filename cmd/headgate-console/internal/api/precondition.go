// This file reads the version that a change is based on.
//
// PUT saves a policy over the version that If-Match names, or else the field
// "version". A request with neither gets a 428. If the policy has another version
// by now, the answer is 412, or 409 if the field was used, and holds both
// versions. To create a policy, send If-None-Match: *. A repeated PUT that finds
// the same content already saved is not a conflict: the answer is the current
// policy.

package api

import (
	"net/http"
	"strconv"
	"strings"
)

// tag returns the ETag of a version of a policy.
func tag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// base reads the version that a change is based on: from If-Match, from
// If-None-Match: * where creation is permitted, or else from the body or query.
func (c *call) base(version int64) (base, error) {
	match, none := c.r.Header.Values("If-Match"), c.r.Header.Values("If-None-Match")

	// If-Match with * or with a list is refused: it would permit to overwrite what the client has
	// not seen.
	switch {
	case len(match)+len(none) > 1:
		return base{}, badPrecondition("more than one precondition")
	case len(none) == 1 && strings.TrimSpace(none[0]) == "*":
		return c.agreed(0, version)
	case len(none) == 1:
		return base{}, badPrecondition("If-None-Match of a change has to be *")
	case len(match) == 1:
		n, ok := untag(match[0])
		if !ok {
			return base{}, badPrecondition(`If-Match has to be the ETag of one version, such as "3"`)
		}
		return c.agreed(n, version)
	case version > 0:
		return base{version: version}, nil
	}

	return base{}, newProblem(http.StatusPreconditionRequired, "precondition-required",
		`say which version the change is based on: If-Match: "3", or If-None-Match: * for a new policy`)
}

// agreed returns the version of a header, or an error if the body names another.
func (c *call) agreed(header, version int64) (base, error) {
	if version != 0 && version != header {
		return base{}, mistake("version", "it is not the one of the header")
	}
	return base{version: header, header: true}, nil
}

func badPrecondition(detail string) *problem {
	return newProblem(http.StatusBadRequest, "precondition", detail)
}

// untag reads the output of tag. It refuses weak tags, which do not protect a
// change.
func untag(s string) (int64, bool) {
	s = strings.TrimSpace(s)
	n, err := strconv.ParseInt(strings.Trim(s, `"`), 10, 64)
	return n, err == nil && n > 0 && s == tag(n)
}

// unchanged reports whether r reads what the client has: whether If-None-Match lists the tag.
func unchanged(r *http.Request, tag string) bool {
	for _, line := range r.Header.Values("If-None-Match") {
		for have := range strings.SplitSeq(line, ",") {
			have = strings.TrimSpace(have)
			if have == "*" || strings.TrimPrefix(have, "W/") == strings.TrimPrefix(tag, "W/") {
				return true
			}
		}
	}
	return false
}
