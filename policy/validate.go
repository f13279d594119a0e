// This file checks the fields of a policy, and has the error that names a field.

package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/keyfuncs"
)

// Validate returns everything that is wrong with the policy, joined, each mistake
// as a [*FieldError], or nil.
func (p *Policy) Validate() error {
	var errs []error
	for _, fault := range p.faults() {
		errs = append(errs, fault)
	}
	return errors.Join(errs...)
}

func (p *Policy) faults() []*FieldError {
	var faults []*FieldError
	mistake := func(field string, err error) {
		if err != nil {
			faults = append(faults, &FieldError{p.Name, field, err})
		}
	}

	// In the order of the fields, which is the order in which people read the mistakes.
	mistake("name", checkName(p.Name))
	mistake("description", textform.Check(p.Description, MaxText))
	mistake("apps", checkApps(p.Apps))
	mistake("limit", p.Limit.Validate())

	checkCost(p, mistake)
	checkAnswers(p, mistake)
	p.checkPlans(mistake)
	checkOverrides(p, mistake)

	_, err := parseRecipe(p.Key)
	mistake("key", err)

	mistake("match.methods", checkMethods(p.Match.Methods))
	mistake("match.host", checkHost(p.Match.Host))
	_, err = parsePattern(p.Match.Path)
	mistake("match.path", err)
	mistake("match.except", checkExcept(p.Match.Except))
	mistake("match.headers", checkHeaders(p.Match.Headers))
	mistake("match.query", checkQuery(p.Match.Query))
	mistake("match.claims", checkClaims(p.Match.Claims))

	mistake("access", p.Access.check(p.Key))
	_, err = parseAction(p.OnLimit)
	mistake("on_limit", err)
	checkShares(p, mistake)
	p.checkBan(mistake)
	_, err = parseFailure(p.OnStoreError)
	mistake("on_store_error", err)

	_, err = p.Mode.MarshalText()
	mistake("mode", err)
	p.checkHistory(mistake)

	return faults
}

// checkHistory checks the fields without influence on decisions.
func (p *Policy) checkHistory(mistake func(field string, err error)) {
	if p.Priority < -MaxPriority || p.Priority > MaxPriority {
		mistake("priority", fmt.Errorf("%d is not within -%d to %d", p.Priority, MaxPriority, MaxPriority))
	}
	if p.Version < 0 {
		mistake("version", fmt.Errorf("%d is negative", p.Version))
	}

	mistake("created_by", textform.Check(p.CreatedBy, maxPerson))
	mistake("created_at", checkTime(p.CreatedAt))
	mistake("updated_by", textform.Check(p.UpdatedBy, maxPerson))
	mistake("updated_at", checkTime(p.UpdatedAt))
}

func checkApps(apps []string) error {
	if len(apps) == 0 {
		return errors.New("no application is named")
	}
	if len(apps) > MaxApps {
		return fmt.Errorf("%d applications are more than %d", len(apps), MaxApps)
	}

	var errs []error
	seen := map[string]bool{}
	for _, app := range apps {
		if err := CheckApp(app); err != nil {
			errs = append(errs, err)
		}
		if seen[app] {
			errs = append(errs, fmt.Errorf("%q is named twice", textform.Clip(app)))
		}
		seen[app] = true
	}
	return errors.Join(errs...)
}

// FieldError is a mistake in one field of one policy.
type FieldError struct {
	Policy string // its name, as given, or "" for a table of plans beside the policies
	Field  string // as in JSON, such as "limit" or "match.path"
	Err    error
}

// Error names the policy, the field and the mistake in one line.
func (e *FieldError) Error() string {
	return fmt.Sprintf("policy %q: %s: %s", textform.Clip(e.Policy), e.Field, textform.Line(e.Err))
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// Bounds of the fields of a policy.
const (
	// MaxName is the maximum length in bytes of the name of a policy or of an
	// application.
	MaxName = 64

	// MaxApps is the maximum number of applications that a policy may name.
	MaxApps = 100

	// MaxText is the maximum length in bytes of a description.
	MaxText = 1000

	// MaxPriority bounds Policy.Priority, above and below 0.
	MaxPriority = 1_000_000
)

// maxPerson is the maximum length in bytes of Policy.CreatedBy and
// Policy.UpdatedBy.
const maxPerson = 200

func checkName(s string) error {
	valid := s != "" && len(s) <= MaxName && 'a' <= s[0] && s[0] <= 'z'
	for i := range len(s) {
		valid = valid && inName(s[i])
	}
	if !valid {
		return fmt.Errorf("it is not 1 to %d of a-z, 0-9, _, . and -, a letter first", MaxName)
	}
	return nil
}

func inName(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// CheckApp returns an error if s is not a name of an application. A name is 1 to
// MaxName letters, digits, "_", ".", "-" and "/", and begins with a letter or
// digit.
func CheckApp(s string) error {
	valid := s != "" && len(s) <= MaxName && isAlphanumeric(s[0])
	for i := range len(s) {
		c := s[i]
		valid = valid && (isAlphanumeric(c) || c == '_' || c == '.' || c == '-' || c == '/')
	}
	if !valid {
		return fmt.Errorf("%q is not 1 to %d letters, digits, _, ., - and /, a letter or digit first", textform.Clip(s),
			MaxName)
	}
	return nil
}

// checkApp is CheckApp for the application that a caller of the package names.
func checkApp(s string) error {
	if err := CheckApp(s); err != nil {
		return fmt.Errorf("policy: the application %w", err)
	}
	return nil
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// maxMethods is the maximum number of methods that a policy may name.
const maxMethods = 16

func checkMethods(methods []string) error {
	if len(methods) > maxMethods {
		return fmt.Errorf("%d methods are more than %d", len(methods), maxMethods)
	}

	var errs []error
	seen := map[string]bool{}
	for _, m := range methods {
		switch {
		// Writers of other programs mean all methods by these. As a method one would match no
		// request.
		case m == "*" || strings.EqualFold(m, "any") || strings.EqualFold(m, "all"):
			errs = append(errs, fmt.Errorf("%q is not a method; leave match.methods out for all", textform.Clip(m)))
		case !isMethod(m):
			errs = append(errs, errMethod(m))
		case seen[m]:
			errs = append(errs, fmt.Errorf("%q is named twice", textform.Clip(m)))
		}
		seen[m] = true
	}
	return errors.Join(errs...)
}

// isMethod reports whether m is written as methods are.
func isMethod(m string) bool {
	for i := range len(m) {
		if c := m[i]; (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return m != "" && len(m) <= MaxName
}

// errMethod returns what is wrong with a method, with those that are probably meant.
func errMethod(m string) error {
	err := fmt.Errorf("%q is not a method in upper case", textform.Clip(m))
	meant := strings.FieldsFunc(strings.ToUpper(m), func(r rune) bool { return strings.ContainsRune(" ,|;/+", r) })
	if len(meant) == 0 || slices.ContainsFunc(meant, func(m string) bool { return !slices.Contains(knownMethods, m) }) {
		return err
	}
	return fmt.Errorf("%w; write %s", err, textform.Clip(strings.Join(meant, ", ")))
}

// canonicalMethod returns the method that stands for m in an index: a policy for
// GET covers HEAD.
func canonicalMethod(m string) string {
	if m == "HEAD" {
		return "GET"
	}
	return m
}

// maxHost is the maximum length in bytes of a name in the DNS, and maxLabel that of a part.
const (
	maxHost  = 253
	maxLabel = 63
)

// checkHost checks Match.Host. Its error has the host that is probably meant.
func checkHost(host string) error {
	err := readHost(host)
	if err == nil {
		return nil
	}

	if host == "*" || host == "*:*" {
		return fmt.Errorf("%w; leave match.host out for every host", err)
	}

	if meant := meantHost(host); meant != "" && readHost(meant) == nil {
		return fmt.Errorf("%w; write %s", err, meant)
	}
	return err
}

func readHost(host string) error {
	if host == "" {
		return nil
	}

	// An address is compared as a text, so it needs the form that keys of requests have.
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Unmap().WithZone("").String() != host {
			return fmt.Errorf("%q is not in its shortest form", textform.Clip(host))
		}
		return nil
	}

	name, below := strings.CutPrefix(host, "*.")
	if _, err := netip.ParseAddr(name); below && err == nil {
		return fmt.Errorf("%q is not the name of a host: no host is below an address", textform.Clip(host))
	}

	for i := range len(name) {
		if !inName(name[i]) {
			return fmt.Errorf("%q is not a name in lower case without a port, or an address", textform.Clip(host))
		}
	}

	valid := len(host) <= maxHost
	for label := range strings.SplitSeq(name, ".") {
		valid = valid && label != "" && len(label) <= maxLabel
	}
	if !valid {
		return fmt.Errorf("%q is not the name of a host", textform.Clip(host))
	}
	return nil
}

// meantHost returns the host of a text that has more or other letters than Match.Host, such
// as that of a URL, or "".
func meantHost(text string) string {
	text = strings.TrimSpace(text)
	if _, rest, found := strings.Cut(text, "://"); found {
		text = rest
	}
	text, _, _ = strings.Cut(text, "/")

	// A cookie's ".example.com" means what "*.example.com" does here.
	name, below := strings.CutPrefix(strings.TrimPrefix(text, "*."), ".")
	below = below || strings.HasPrefix(text, "*.")

	host := keyfuncs.HostKey(name) // as that of a request, without a port and a dot
	if host == "" || !below {
		return host
	}
	return "*." + host
}
