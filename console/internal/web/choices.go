package web

import "strings"

// choice is something to choose, with a line that explains it.
type choice struct {
	Value, Words, Help string
}

func algorithms() []choice {
	return []choice{
		{Value: "gcra", Words: "Even spacing (GCRA)", Help: "Spreads requests evenly and forgives a burst. The best choice for most APIs."},
		{Value: "token-bucket", Words: "Token bucket", Help: "Tokens pile up while no request comes; a burst may spend them all at once."},
		{Value: "sliding-window", Words: "Sliding window", Help: "Counts the last period in segments: close to exact, and cheap at any quota."},
		{Value: "sliding-log", Words: "Sliding log", Help: "Remembers every request: never more than the quota in any period. For small quotas, such as log-ins."},
		{Value: "fixed-window", Words: "Fixed window", Help: "A fresh quota each period. Simple, but lets up to twice the quota through around the change of window."},
		{Value: "concurrent", Words: "At the same time", Help: "Counts requests under way, not per time. The period is when a lost one is given up."},
	}
}

func recipes() []choice {
	return []choice{
		{Value: "ip", Words: "Each address", Help: "Every caller by IP address. IPv6 is counted by network."},
		{Value: "user", Words: "Each signed-in user", Help: "As the application tells who is signed in."},
		{Value: "api-key", Words: "Each API key", Help: "The credential in the header X-Api-Key."},
		{Value: "ip+route", Words: "Each address on each route", Help: "A count of its own for every pair of address and route."},
		{Value: "global", Words: "All callers together", Help: "One count that all callers share."},
	}
}

func limitActions() []choice {
	return []choice{
		{Value: "reject", Words: "Refuse it", Help: "The caller gets 429 Too Many Requests and the time of the next attempt."},
		{Value: "wait", Words: "Let it wait", Help: "Held back until there is room, for so long at most."},
		{Value: "degrade", Words: "Give a cheaper answer", Help: "It passes marked, and the application may do less for it."},
	}
}

func failureModes() []choice {
	return []choice{
		{Value: "", Words: "As the application is set up", Help: "The usual choice."},
		{Value: "open", Words: "Let all pass", Help: "Better too many than none."},
		{Value: "closed", Words: "Refuse all", Help: "For what must never go uncounted, such as log-ins."},
		{Value: "local", Words: "Count in each instance", Help: "Each instance counts for itself until the store is back."},
	}
}

func modes() []choice {
	return []choice{
		{Value: "enforce", Words: "Enforce", Help: "What is over the limit is held back."},
		{Value: "shadow", Words: "Shadow", Help: "Counted and reported, and no request is refused. Good for trying a limit out."},
		{Value: "off", Words: "Off", Help: "Not looked at."},
	}
}

// onLimitWords describes what happens to a request over the limit.
func onLimitWords(onLimit string) string {
	span, waits := strings.CutPrefix(onLimit, "wait ")
	switch {
	case waits:
		return "waits up to " + span
	case onLimit == "degrade":
		return "passes marked, for a cheaper answer"
	}
	return "is refused with 429"
}
