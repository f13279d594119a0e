package web

import (
	"strings"
	"time"

	"github.com/headgate/headgate/policy"
)

// watched is what a policy in shadow has seen, with the button that enforces it.
type watched struct {
	Name    string
	Since   time.Time
	Begins  bool // counting begins later, at Since
	Seen    int64
	Over    int64 // of them, over the limit
	OnLimit string
	Counted bool // there is a Redis

	CanEdit bool
	Version int64 // of the page, which the button enforces
	Stale   bool  // there is a newer version
}

// Share says which part of the requests was over the limit.
func (w watched) Share() string { return share(w.Over, w.Seen) }

// Fate says what would have become of the requests over the limit.
func (w watched) Fate() string {
	switch {
	case strings.HasPrefix(w.OnLimit, "wait "):
		return "would have waited, or been refused"
	case w.OnLimit == "degrade":
		return "would have got a cheaper answer"
	}
	return "would have been refused"
}

// watched returns what a policy has seen, or nil if it is not in shadow. shown is the version of
// the page.
func (r *request) watched(p policy.Policy, shown int64) (*watched, error) {
	if p.Mode != policy.Shadow {
		return nil, nil
	}

	seen, err := r.Service.SeenInShadow(r.req.Context(), r.actor, p.Name)
	if err != nil || seen.Since.IsZero() { // it was changed since
		return nil, err
	}

	return &watched{
		Name: p.Name, Since: seen.Since, Begins: seen.Since.After(r.Clock()), Seen: seen.Counts.Total(),
		Over: seen.Over(), OnLimit: p.OnLimit, Counted: r.Fleet != nil,
		CanEdit: r.access.CanEdit(p.Apps), Version: shown, Stale: shown != p.Version,
	}, nil
}
