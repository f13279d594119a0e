// This file has which answers give units back.

package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/limiter"
)

// MaxStatuses is the maximum number of entries of Policy.Refund and of Policy.CountOnly.
const MaxStatuses = 32

// Statuses lists statuses of answers, such as "304", and classes of them, such as "5xx". In JSON
// and YAML an entry may be a number too. The status of a request whose client has left before the
// answer is 499, as in limiter.StatusClientLeft. No class has it, as a client could otherwise
// choose what a request costs.
type Statuses []string

// MarshalJSON writes single statuses as numbers and classes as texts.
func (s Statuses) MarshalJSON() ([]byte, error) {
	list := make([]any, len(s))
	for i, text := range s {
		list[i] = text
		if n, err := strconv.Atoi(text); err == nil && strconv.Itoa(n) == text {
			list[i] = n
		}
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads a list of numbers and texts. The entries are not checked; see
// [Policy.Validate].
func (s *Statuses) UnmarshalJSON(text []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return errors.New("it is not a list of statuses such as [304, 5xx]")
	}

	// An empty list stays one, so that it can be called a mistake.
	*s = make(Statuses, len(list))
	for i, entry := range list {
		var number json.Number
		if err := json.Unmarshal(entry, &number); err == nil && string(entry) != "null" {
			(*s)[i] = number.String()
			continue
		}
		if err := json.Unmarshal(entry, &(*s)[i]); err != nil || string(entry) == "null" {
			return fmt.Errorf("%q is not a status such as 304 or 5xx", textform.Clip(string(entry)))
		}
	}
	return nil
}

// statusSet holds statuses of answers.
type statusSet [600]bool

// anyStatus holds every status that an answer may have. Any other means that the answer was not
// seen, or that the client has not waited for it. Then no units come back.
var anyStatus, _ = Statuses{"1xx", "2xx", "3xx", "4xx", "5xx"}.set()

// has reports whether the set has the status.
func (s *statusSet) has(status int) bool { return status >= 0 && status < len(s) && s[status] }

// set returns the statuses of the list, or an error that names every mistake.
func (s Statuses) set() (*statusSet, error) {
	switch {
	case len(s) == 0:
		return nil, errors.New("the list is empty")
	case len(s) > MaxStatuses:
		return nil, fmt.Errorf("%d entries are more than %d", len(s), MaxStatuses)
	}

	var all statusSet
	var errs []error
	for _, text := range s {
		first, n, err := statusRange(text)
		if err == nil && all.has(first) && all.has(first+n-1) {
			err = fmt.Errorf("%q is named already", textform.Clip(text))
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for i := range n {
			if n == 1 || first+i != limiter.StatusClientLeft {
				all[first+i] = true
			}
		}
	}
	return &all, errors.Join(errs...)
}

// statusRange reads an entry: the first of n statuses.
func statusRange(text string) (first, n int, err error) {
	err = fmt.Errorf("%q is not a status such as 304, or a class such as 5xx", textform.Clip(text))
	if len(text) != 3 || text[0] < '1' || text[0] > '5' {
		return 0, 0, err
	}
	if text[1:] == "xx" {
		return int(text[0]-'0') * 100, 100, nil
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, 0, err
		}
	}
	first, _ = strconv.Atoi(text) // three digits
	return first, 1, nil
}

// checkAnswers reports what is wrong with Refund and CountOnly.
func checkAnswers(p *Policy, mistake func(field string, err error)) {
	for _, list := range []struct {
		field    string
		statuses Statuses
	}{{"refund", p.Refund}, {"count_only", p.CountOnly}} {
		if list.statuses == nil {
			continue
		}
		_, err := list.statuses.set()
		mistake(list.field, err)
		if p.Limit.Leased() {
			mistake(list.field, errors.New("a concurrency limit gets its units back with every answer"))
		}
	}

	if p.Refund != nil && p.CountOnly != nil {
		mistake("count_only", errors.New("refund says already which answers give the units back; write one of both"))
	}
}

// refundIf returns limiter.Rule.RefundIf of a valid policy.
func refundIf(p *Policy) func(status int) bool {
	switch {
	case p.Refund != nil:
		set, _ := p.Refund.set()
		return set.has
	case p.CountOnly != nil:
		set, _ := p.CountOnly.set()
		return func(status int) bool { return anyStatus.has(status) && !set.has(status) }
	}
	return nil
}
