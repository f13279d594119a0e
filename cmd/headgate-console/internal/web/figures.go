package web

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy/stats"
)

// figure is a number on top of the page.
type figure struct {
	Class, Words string
	Value, Unit  string // such as "165" and "/s now"
	Sub          string // the sum of the range, and that of the range before
	Quiet        bool   // it is none
}

// topFigures returns the figures on top: requests, refused, errors, and each other kind that
// occurs. past is how much of the range has passed, and long the range in words.
func topFigures(total, before figures, now service.Lately, past time.Duration, long string) []figure {
	all := figure{Class: "all", Words: "Requests", Quiet: total.All == 0}
	all.Value, all.Unit = rate(float64(total.All)/past.Seconds()), "/s on average"
	if now.Span > 0 {
		all.Value, all.Unit = rate(float64(now.Counts.Total())/now.Span.Seconds()), "/s now"
	}
	all.Sub = digits(total.All) + " in " + long + compared(total.All, before.All)

	refused, n := figure{Class: "refused", Words: "Refused"}, total.Of("refused")
	refused.Value, refused.Unit = total.Share(), "in "+long
	if now := figuresOf(now.Counts); now.All > 0 {
		refused.Value, refused.Unit = now.Share(), "now"
	}
	refused.Sub = digits(n) + " in " + long + ", " + total.Share()
	if was := before.Share(); was != "" {
		refused.Sub += " (" + was + " before)"
	}
	if refused.Quiet = n == 0; refused.Quiet {
		refused.Value, refused.Unit, refused.Sub = "none", "", ""
	}

	list := []figure{all, refused}
	for _, p := range total.Parts {
		switch {
		case p.Class == "failed":
			f := figure{Class: p.Class, Words: p.Words, Value: "none", Quiet: p.N == 0}
			if p.N > 0 {
				f.Value, f.Unit, f.Sub = digits(p.N), "in "+long, total.How()
			}
			list = append(list, f)
		case p.Class != "passed" && p.Class != "refused" && p.N > 0:
			list = append(list, figure{Class: p.Class, Words: p.Words, Value: digits(p.N), Unit: "in " + long,
				Sub: share(p.N, total.All) + " of all"})
		}
	}
	return list
}

// compared says how much more a sum is than the one before, or "" if that was nothing.
func compared(now, before int64) string {
	if before == 0 {
		return ""
	}
	switch more := math.Round(float64(now-before) / float64(before) * 100); {
	case more == 0:
		return ", as before"
	case more >= 1000:
		return ", more than ten times as many as before"
	case more > 0:
		return fmt.Sprintf(", %.0f%% more than before", more)
	default:
		return fmt.Sprintf(", %.0f%% fewer than before", -more)
	}
}

// refusing is a policy that refuses requests now.
type refusing struct {
	sumRow
	Key, KeyLink string // that it refuses most, "" if it is not known
	Others       string // keys that it refuses, in words
}

// addRefusing adds the policies that refuse requests now, with the key that each refuses most.
func (r *request) addRefusing(o *overview, sums []service.Sum) error {
	tops := map[string]stats.Top{}
	o.MoreRefusing = int64(max(0, len(sums)-maxRefusing))

	for _, s := range sums[:min(len(sums), maxRefusing)] {
		top, known := tops[s.App]
		if !known {
			var err error
			top, err = r.Service.Top(r.req.Context(), r.actor, s.App)
			if err != nil && !errors.Is(err, service.ErrNoFleet) {
				return err
			}
			tops[s.App] = top
		}

		row := refusing{sumRow: sumRowOf(s, policyPath(s.Policy)+"?range="+o.Range)}
		for _, rule := range top.Rules {
			if rule.Rule == s.Policy {
				row.addKey(rule.Refused)
			}
		}
		o.Refusing = append(o.Refusing, row)
	}
	return nil
}

// addKey says which key is refused most.
func (r *refusing) addKey(s topkeys.Summary) {
	if len(s.Keys) == 0 {
		return
	}

	// A key that was cut in reports cannot be looked up.
	key := s.Keys[0].Key
	r.Key, r.KeyLink = readable(key), keysPath(r.Policy, key)
	if service.IsShortened(key) {
		r.KeyLink = "/keys?" + given(map[string]string{"app": r.App, "policy": r.Policy}).Encode()
	}

	// The list has an end, behind which there may be more.
	others := int64(len(s.Keys) - 1)
	switch {
	case s.Floor > 0:
		r.Others = "and more than " + plural(others, "other", "others")
	case others > 0:
		r.Others = "and " + plural(others, "other", "others")
	}
}
