package transport

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
)

// Settlement corrects the costs of a request to what it has used, by the names of rules; see
// [limiter.Result.Settle]. whole is whether that is all, as for an answer that came to its end:
// otherwise a rule keeps its cost unless more was used. Only the first call counts. It asks the
// store before it returns. An [Observer] receives its errors as [Unsettled].
type Settlement func(actual map[string]int64, whole bool)

// SettleTokens returns a Config.Settle for the APIs of language models: what an answer has used, as
// [llmusage.Watch] reads it, is the cost under the rule of that name. An answer with a status of
// 400 or above has used nothing. One that breaks off, is left or does not report its tokens keeps
// its estimate, unless it has reported more. The program has to close the bodies.
func SettleTokens(rule string) func(*http.Response, Settlement) {
	return func(resp *http.Response, settle Settlement) {
		failed := resp.StatusCode >= 400
		llmusage.Watch(resp, func(u llmusage.Usage, err error) {
			settle(map[string]int64{rule: u.Total}, err == nil || failed)
		})
	}
}

// settlement returns what Config.Settle calls for an answer. It may be called after the context of
// the request has ended.
func (e *exchange) settlement(own *limiter.Result) Settlement {
	ctx, told := context.WithoutCancel(e.req.Context()), *e
	return func(actual map[string]int64, whole bool) {
		if !whole {
			actual = moreThan(own, actual)
		}
		if err := own.Settle(ctx, actual); err != nil {
			told.observe(Event{Outcome: Unsettled, Err: err})
		}
	}
}

// moreThan returns the units that are more than the request was charged.
func moreThan(own *limiter.Result, actual map[string]int64) map[string]int64 {
	more := map[string]int64{}
	for _, d := range own.Decisions() {
		if n, named := actual[d.Rule]; named && n > d.Decision.Taken {
			more[d.Rule] = n
		}
	}
	return more
}
