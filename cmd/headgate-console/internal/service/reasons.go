package service

import (
	"regexp"
	"slices"
	"strings"

	"github.com/headgate/headgate/policy"
)

// policyInText matches a policy that an error of an instance names.
var policyInText = regexp.MustCompile(`policy "([^"]*)(?:"|$)`)

// hideOthers replaces in the errors of instances what they say of policies that the actor does not
// see, and drops what they leave out of policies that are not of their application.
func (a *action) hideOthers(all []policy.Instance) error {
	speaks := func(i policy.Instance) bool { return i.Error != "" || len(i.LeftOut) > 0 || i.MoreLeftOut != 0 }
	if !slices.ContainsFunc(all, speaks) {
		return nil
	}

	set, err := a.policies()
	if err != nil {
		return err
	}

	known := map[string]string{} // most instances give the same reason
	for n := range all {
		i := &all[n]
		if _, ok := known[i.Error]; !ok {
			known[i.Error] = a.reason(set, i.Error)
		}
		i.Error = known[i.Error]

		i.LeftOut = slices.DeleteFunc(slices.Clone(i.LeftOut), func(l policy.LeftOut) bool {
			p, ok := set.find(l.Policy)
			return !ok || !slices.Contains(p.Apps, i.App) || !a.access.CanSee(p.Apps)
		})
		i.MoreLeftOut = min(max(0, i.MoreLeftOut), policy.MaxPolicies)
	}
	return nil
}

// reason returns why an instance refuses a version, for display to the actor. An instance checks
// the policies of all applications, so the parts about policies that the actor does not see are
// replaced.
func (a *action) reason(set policySet, text string) string {
	if text == "" || a.access.seesAll() {
		return text
	}

	// The text names one policy after the other. What it says of one ends where it names the next.
	const other = "a policy of another application is not valid for this instance"
	var parts []string
	at := policyInText.FindAllStringSubmatchIndex(text, -1)
	if len(at) == 0 {
		return text
	}

	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}

		p, exists := set.find(text[m[2]:m[3]])
		switch {
		case exists && a.access.CanSee(p.Apps):
			parts = append(parts, strings.TrimRight(text[m[0]:end], "; "))
		// Hidden policies in a row are one part.
		case len(parts) == 0 || parts[len(parts)-1] != other:
			parts = append(parts, other)
		}
	}

	return strings.Join(parts, "; ")
}
