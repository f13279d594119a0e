package service

import (
	"context"
	"errors"
	"regexp"
	"strings"
)

// policyInText matches a policy that an error of an instance names.
var policyInText = regexp.MustCompile(`policy "([^"]*)(?:"|$)`)

// Reasons returns why instances refuse a version, for display to the actor. An instance checks
// the policies of all applications, so the parts about policies that the actor does not see
// are replaced.
func (s *Service) Reasons(ctx context.Context, a Actor, texts []string) (shown []string, err error) {
	err = s.ask(ctx, a, "policy.list", "policies", func(d *action) error {
		shown = make([]string, len(texts))
		known := map[string]string{} // most instances give the same reason
		for i, text := range texts {
			if _, ok := known[text]; !ok {
				if known[text], err = d.reason(text); err != nil {
					return err
				}
			}
			shown[i] = known[text]
		}
		return nil
	})
	return shown, err
}

func (a *action) reason(text string) (string, error) {
	if text == "" || a.access.seesAll() {
		return text, nil
	}

	// The text names one policy after the other. What it says of one ends where it names the next.
	const other = "a policy of another application is not valid for this instance"
	var parts []string
	at := policyInText.FindAllStringSubmatchIndex(text, -1)
	if len(at) == 0 {
		return text, nil
	}

	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}

		p, err := a.anyPolicy(text[m[2]:m[3]])
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return "", err
		case err == nil && a.access.CanSee(p.Apps):
			parts = append(parts, strings.TrimRight(text[m[0]:end], "; "))
		// Hidden policies in a row are one part.
		case len(parts) == 0 || parts[len(parts)-1] != other:
			parts = append(parts, other)
		}
	}

	return strings.Join(parts, "; "), nil
}
