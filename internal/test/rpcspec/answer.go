package rpcspec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/rpc"
)

// Answer is the end of a call as a client sees it.
type Answer struct {
	Code       rpc.Code
	Message    string
	RetryAfter time.Duration     // of RetryInfo; 0 if there is none
	Rules      []string          // of QuotaFailure
	Pairs      map[string]string // the headers and trailers of limiters, in lower case
	Text       string
}

// AddPair adds a header or trailer with its values, unless it is none of a limiter's.
func (a *Answer) AddPair(name string, values []string) {
	name = strings.ToLower(name)
	switch name {
	case "ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
		"retry-after", "x-own", "headgate mark":
		if a.Pairs == nil {
			a.Pairs = map[string]string{}
		}
		if old := a.Pairs[name]; old != "" {
			values = append([]string{old}, values...)
		}
		a.Pairs[name] = strings.Join(values, " | ")
	}
}

// with returns the answer with more pairs, which replace those of the same name.
func (a Answer) with(more ...map[string]string) Answer {
	pairs := maps.Clone(a.Pairs)
	if pairs == nil {
		pairs = map[string]string{}
	}
	for _, m := range more {
		maps.Copy(pairs, m)
	}
	a.Pairs = pairs
	return a
}

// String returns the answer in lines, with the pairs sorted.
func (a Answer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "code %d %q, retry after %s, rules %q\n", a.Code, a.Message, a.RetryAfter, a.Rules)
	for _, name := range slices.Sorted(maps.Keys(a.Pairs)) {
		fmt.Fprintf(&b, "%s: %s\n", name, a.Pairs[name])
	}
	return b.String() + "\n" + a.Text
}

// text returns the answer of a call that passes.
func text(s string) Answer { return Answer{Text: s} }

// failed returns an error of a handler.
func failed(code rpc.Code, message string) Answer { return Answer{Code: code, Message: message} }

// rate returns the pairs for rule "a", which grants quota units in 10 seconds. At second
// at, left units are left, and the rule is fresh reset seconds later.
func rate(at, quota, left, reset int) map[string]string {
	return map[string]string{
		"x-ratelimit-limit":     strconv.Itoa(quota),
		"x-ratelimit-remaining": strconv.Itoa(left),
		"x-ratelimit-reset":     strconv.Itoa(epoch + at + reset),
		"ratelimit-policy":      fmt.Sprintf(`"a";q=%d;w=10`, quota),
		"ratelimit":             fmt.Sprintf(`"a";r=%d;t=%d`, left, reset),
	}
}

// leasePairs returns the pairs for rule "lease", which grants one lease for at most a
// minute.
func leasePairs(left int) map[string]string {
	return map[string]string{
		"x-ratelimit-limit":     "1",
		"x-ratelimit-remaining": strconv.Itoa(left),
		"x-ratelimit-reset":     strconv.Itoa(epoch + 60),
		"ratelimit-policy":      `"lease";q=1;qu="concurrent-requests"`,
		"ratelimit":             fmt.Sprintf(`"lease";r=%d`, left),
	}
}

// after returns the end of a message and the pair for a client that may come again after d.
func after(d time.Duration) (text string, pair map[string]string) {
	n := int((d + time.Second - 1) / time.Second)
	unit := "seconds"
	if n == 1 {
		unit = "second"
	}
	return fmt.Sprintf("; retry after %d %s", n, unit), map[string]string{"retry-after": strconv.Itoa(n)}
}

// refusal returns the answer of a rule to a client that may repeat the call after d.
func refusal(rule string, d time.Duration) Answer {
	end, pair := after(d)
	return Answer{Code: rpc.ResourceExhausted, Message: fmt.Sprintf("over the limit of %q%s", rule, end),
		RetryAfter: d, Rules: []string{rule}, Pairs: pair}
}

// abnormal returns the answer of a rule to a client that is banned for d.
func abnormal(rule string, d time.Duration) Answer {
	a := refusal(rule, d)
	end, _ := after(d)
	a.Message = fmt.Sprintf("banned by %q for abnormal usage%s", rule, end)
	return a
}

// unavailable returns the answer of a limiter that fails closed when the store could not
// decide.
func unavailable() Answer {
	end, pair := after(time.Second)
	return Answer{Code: rpc.Unavailable, Message: "the limiter cannot decide" + end, RetryAfter: time.Second, Pairs: pair}
}
