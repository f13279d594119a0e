// This file finds what is valid and yet probably a mistake.

package policy

import (
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/observe/findings"
)

// Codes of findings, which the log of a follower has as "code". They do not change.
const (
	// CodeNoPolicies: no policy names the application, so nothing is limited.
	CodeNoPolicies = "HG018"

	// CodeDoubt: a part of a policy is valid, and no request may ever meet it.
	CodeDoubt = "HG019"
)

// knownMethods are those of HTTP and WebDAV, and those that search engines and caches have.
var knownMethods = []string{
	"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "QUERY", "PURGE",
	"COPY", "LOCK", "MKCOL", "MOVE", "PROPFIND", "PROPPATCH", "UNLOCK", "REPORT", "SEARCH", "MKCALENDAR", "ACL",
}

// Doubts returns the parts of a valid policy that no request may ever meet: those that a follower
// logs as CodeDoubt. Each is valid, and probably a mistake.
func (p *Policy) Doubts() []*FieldError {
	var doubts []*FieldError
	mistake := func(field string, err error) {
		if err != nil {
			doubts = append(doubts, &FieldError{p.Name, field, err})
		}
	}

	for _, m := range p.Match.Methods {
		if !slices.Contains(knownMethods, m) {
			mistake("match.methods", fmt.Errorf("%q is no method of HTTP, WebDAV or caches", textform.Clip(m)))
		}
	}

	// A text that is decoded once is a path like any other. One that decodes further was encoded by
	// the writer and by a program.
	if once, err := url.PathUnescape(p.Match.Path); err == nil && once != p.Match.Path {
		if twice, err := url.PathUnescape(once); err == nil && twice != once {
			mistake("match.path", fmt.Errorf("%q is encoded twice; that of a request is decoded once",
				textform.Clip(p.Match.Path)))
		}
	}

	mistake("match.query", doubtQuery(p.Match.Query))
	mistake("match.claims", doubtClaims(p.Match.Claims))

	// Those of a single recipe are checked by Validate, and cause no doubt.
	parts, _ := parseRecipe(p.Key)
	for i, key := range slices.Sorted(maps.Keys(p.Overrides)) {
		if _, isPrefix := OverriddenPrefix(key); !isPrefix {
			mistake(OverrideField(p.Key, key, i), doubtJoinedKey(parts, key))
		}
	}

	for _, list := range []struct {
		field string
		keys  []string
	}{{"access.allow", p.Access.Allow.Keys}, {"access.deny", p.Access.Deny.Keys}} {
		for i, key := range list.keys {
			mistake(fmt.Sprintf("%s.keys[%d]", list.field, i), doubtJoinedKey(parts, key))
		}
	}

	return doubts
}

// warn logs, for a set that was put in force, what may be meant otherwise: that it has no
// policy for the application, and parts of policies that no request may ever meet. before is
// how many policies were in force.
func (f *Follower) warn(s Snapshot, before int) {
	switch names := s.Policies.apps(); {
	case len(names) == 0 && before > 0:
		f.logFinding(CodeNoPolicies, "headgate: all policies are gone, so nothing is limited any more", s,
			slog.Int("before", before))
	case len(names) == 0:
		f.logFinding(CodeNoPolicies, "headgate: there are no policies, so nothing is limited", s)
	case !slices.Contains(names, f.app):
		f.logFinding(CodeNoPolicies, "headgate: no policy names this application, so nothing is limited", s,
			slog.String("named", listed(names)), slog.Int("policies", len(s.Policies)), slog.Int("before", before))
	}

	var doubts []string
	mine := s.Policies.For(f.app)
	for i := range mine {
		for _, doubt := range mine[i].Doubts() {
			doubts = append(doubts, doubt.Error())
		}
	}
	if len(doubts) > 0 {
		f.logFinding(CodeDoubt, "headgate: a part of these policies may never apply", s,
			slog.String("doubt", clipped(strings.Join(doubts, "; "))))
	}
}

// logFinding logs a finding about a version.
func (f *Follower) logFinding(code, text string, s Snapshot, attrs ...slog.Attr) {
	first := []slog.Attr{slog.String("code", code), slog.String("version", s.Version)}
	see := slog.String("see", findings.Page(code))
	f.log(slog.LevelWarn, text, append(append(first, attrs...), see)...)
}

// apps returns the applications that the policies name, in alphabetic order.
func (s Set) apps() []string {
	var names []string
	for i := range s {
		names = append(names, s[i].Apps...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// listed returns the first names of a list, and how many more there are.
func listed(names []string) string {
	const most = 10
	var first []string
	for _, name := range names[:min(len(names), most)] {
		first = append(first, textform.Clip(name))
	}

	text := strings.Join(first, ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
