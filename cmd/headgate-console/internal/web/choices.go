package web

import "strings"

// choice is an option of a form, with a line that explains it.
type choice struct {
	Value, Words, Help string
}

func algorithms() []choice {
	return []choice{
		{Value: "gcra", Words: "Even spacing (GCRA)",
			Help: "Spreads requests evenly and forgives a burst. " +
				"The best choice for most APIs."},
		{Value: "token-bucket", Words: "Token bucket",
			Help: "Tokens pile up while no request comes; " +
				"a burst may spend them all at once."},
		{Value: "sliding-window", Words: "Sliding window",
			Help: "Counts the last period in segments: " +
				"close to exact, and cheap at any quota."},
		{Value: "sliding-log", Words: "Sliding log",
			Help: "Remembers every request: " +
				"never more than the quota in any period. For small quotas, such as log-ins."},
		{Value: "fixed-window", Words: "Fixed window",
			Help: "A fresh quota each period. Simple, " +
				"but lets up to twice the quota through around the change of window."},
		{Value: "calendar", Words: "By the calendar",
			Help: "A fresh quota each day, week, " +
				"month or year of a time zone, as plans have it."},
		{Value: "concurrent", Words: "At the same time",
			Help: "Limits requests in progress, " +
				"not requests per time. A request that never ends is counted for one period."},
	}
}

func recipes() []choice {
	return []choice{
		{Value: "ip", Words: "Each address", Help: "Every caller by IP address. IPv6 is counted by network."},
		{Value: "user", Words: "Each signed-in user", Help: "Every user by the name that the application gives."},
		{Value: "api-key", Words: "Each API key", Help: "The credential in the header X-Api-Key."},
		{Value: "ip+route", Words: "Each address on each route",
			Help: "A count of its own for every pair of address and route."},
		{Value: "global", Words: "All callers together", Help: "One count that all callers share."},
	}
}

func limitActions() []choice {
	return []choice{
		{Value: "reject", Words: "Refuse it",
			Help: "The caller gets 429 Too Many Requests and the time of " +
				"the next attempt."},
		{Value: "wait", Words: "Let it wait", Help: "It is held back until there is room, up to the longest wait."},
		{Value: "degrade", Words: "Give a cheaper answer",
			Help: "It passes marked, and the application may do less for it."},
	}
}

func failureModes() []choice {
	return []choice{
		{Value: "", Words: "As the application is set up", Help: "The usual choice."},
		{Value: "open", Words: "Let all pass", Help: "Too many requests rather than none."},
		{Value: "closed", Words: "Refuse all", Help: "For requests that must never go uncounted, such as log-ins."},
		{Value: "local", Words: "Count in each instance",
			Help: "Each instance counts for itself until the store is back."},
	}
}

func modes() []choice {
	return []choice{
		{Value: "enforce", Words: "Enforce",
			Help: "Requests over the limit are refused, " +
				"wait or get a cheaper answer."},
		{Value: "shadow", Words: "Shadow",
			Help: "Requests are counted and reported, and none is refused. " +
				"Good for trying a limit out."},
		{Value: "off", Words: "Off", Help: "The policy has no effect."},
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
