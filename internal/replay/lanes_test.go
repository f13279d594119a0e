package replay

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// laneLog is a log of many callers, in bursts, from addresses of both kinds and names of hosts.
func laneLog(seed uint64, lines int) string {
	var log strings.Builder
	rnd := rand.New(rand.NewPCG(seed, 1))
	second := 0
	for range lines {
		if rnd.IntN(60) == 0 {
			second += rnd.IntN(4)
		}
		n := rnd.IntN(400) * rnd.IntN(400) / 400
		caller := []string{fmt.Sprintf("192.0.%d.%d", n/200, n%200), fmt.Sprintf("2001:db8:0:%x::%x", n/7, rnd.IntN(9)),
			fmt.Sprintf("host%d.example", n)}[n%3]
		line := lineAt(second, caller, []string{"/", "/a/1", "/a/2", "/b"}[rnd.IntN(4)])
		log.WriteString(strings.Replace(line, `" 200 `, fmt.Sprintf(`" %d `, []int{200, 304, 500}[rnd.IntN(3)]), 1))
	}
	return log.String()
}

const lanePolicies = `
- {name: all, apps: [a], limit: 12/1m, key: ip}
- {name: a, apps: [a], limit: 6/1m burst=3, key: ip, match: {path: /a/}, refund: [304]}
- {name: ids, apps: [a], limit: 4/30s sliding-log, key: ip+path, match: {path: "/a/{id}"}, mode: shadow}
- {name: nets, apps: [a], limit: 20/1m fixed-window, key: ip/48, ban: 5/1m for 30s max 2m}
- {name: b, apps: [a], limit: 3/10s token-bucket, key: ip, match: {path: /b}, on_limit: wait 5s}
- {name: slide, apps: [a], limit: 30/2m sliding-window, key: ip+method, on_limit: degrade, access: {deny: {networks: [192.0.0.3]}}}
`

// A log is decided on several processors as on one.
func TestLanesReportTheSame(t *testing.T) {
	set := setOf(t, lanePolicies)
	against := setOf(t, "- {name: all, apps: [a], limit: 9/1m, key: ip}")
	for seed := range uint64(2) {
		log := laneLog(seed, 2*laneEntries+7)
		report := func(n int) string {
			r, _ := replayOf(t, log, Options{Policies: set, Against: against, Compare: seed%2 == 0, MaxKeys: 1 << 20,
				Lanes: n})
			if (r.lanes != nil) != (n > 1) {
				t.Fatalf("%d lanes: %t", n, r.lanes != nil)
			}
			text, err := json.MarshalIndent(r.Report(), "", " ")
			if err != nil {
				t.Fatal(err)
			}

			// What was decided so far stays so.
			if again, _ := json.MarshalIndent(r.Report(), "", " "); string(again) != string(text) {
				t.Errorf("a second report differs: %s", again)
			}
			return string(text)
		}

		one := report(0)
		for _, policy := range strings.Split(one, `"policy"`)[1:] {
			if strings.Contains(policy, `"over": 0,`) {
				t.Errorf("a policy has nothing to do: %s", policy)
			}
		}
		for _, n := range []int{2, 3} {
			if got := report(n); got != one {
				t.Errorf("log %d: %d lanes report\n%s\nwant\n%s", seed, n, got, one)
			}
		}
	}
}

func TestOnlyPoliciesByTheCallerHaveLanes(t *testing.T) {
	const line = "- {name: %s, apps: [a], limit: 1/1m, key: %s}\n"
	for keys, want := range map[string]bool{
		"ip": true, "ip ip/56": true, "ip+path ip": true, "ip/96": true,
		"global": false, "ip path": false, "ip user": true, "ip header:User-Agent": false, "ip ip/128": false,
	} {
		text := ""
		for i, key := range strings.Fields(keys) {
			text += fmt.Sprintf(line, fmt.Sprint("p", i), `"`+key+`"`)
		}

		// The user is no key without Users, so its policy is left out.
		o := Options{Policies: setOf(t, text), MaxKeys: 1 << 20, Lanes: 2}
		if r, _ := replayOf(t, lineAt(0, "192.0.2.1", "/"), o); (r.lanes != nil) != want {
			t.Errorf("%s: lanes: %t, want %t", keys, r.lanes != nil, want)
		}

		// The policies in force are decided about too.
		o.Policies, o.Against, o.Compare = setOf(t, fmt.Sprintf(line, "p", "ip")), o.Policies, true
		if r, _ := replayOf(t, lineAt(0, "192.0.2.1", "/"), o); (r.lanes != nil) != want {
			t.Errorf("against %s: lanes: %t, want %t", keys, r.lanes != nil, want)
		}

		// Few keys are no share for each.
		o.MaxKeys = 2*laneKeys - 1
		if r, _ := replayOf(t, lineAt(0, "192.0.2.1", "/"), o); r.lanes != nil {
			t.Errorf("%s: lanes with %d keys", keys, o.MaxKeys)
		}
	}

	// Without a request there is nothing to report.
	o := Options{Policies: setOf(t, fmt.Sprintf(line, "p", "ip")), MaxKeys: 1 << 20}
	one, _ := replayOf(t, "", o)
	o.Lanes = 2
	two, _ := replayOf(t, "", o)
	if got, want := fmt.Sprint(*two.Report()), fmt.Sprint(*one.Report()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Samples of many keys are one sample, whatever their order.
func TestDistinctMerges(t *testing.T) {
	var whole, left, right distinct
	for i := range 5 * maxDistinct {
		hash := hashOf(fmt.Sprint(i))
		whole.add(hash)
		if i < maxDistinct/4 {
			left.add(hash)
		} else {
			right.add(hash)
		}
	}
	if left.level != 0 || right.level == 0 {
		t.Fatalf("levels %d and %d", left.level, right.level)
	}

	for _, order := range [][2]*distinct{{&left, &right}, {&right, &left}} {
		var sum distinct
		sum.merge(order[0])
		sum.merge(order[1])
		if sum.count() != whole.count() || sum.level != whole.level {
			t.Errorf("%d at level %d, want %d at %d", sum.count(), sum.level, whole.count(), whole.level)
		}
	}
}
