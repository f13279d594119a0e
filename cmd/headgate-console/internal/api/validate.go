package api

import (
	"net/http"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// verdict is the result of checking a policy without saving it.
type verdict struct {
	Valid    bool    `json:"valid"`
	Errors   []fault `json:"errors"`
	Limit    string  `json:"limit"`    // its canonical text, or "" if it is wrong
	Sentence string  `json:"sentence"` // "" if there are mistakes
	MaySave  bool    `json:"may_save"` // the actor owns every application that it lists

	WouldRefuse *wouldRefuse `json:"would_refuse"` // null unless it refuses more than the saved policy
}

// wouldRefuse is what a policy would have refused of the requests of the last minutes.
type wouldRefuse struct {
	Sentence string `json:"sentence"`
	Known    bool   `json:"known"` // the figures are 0 if not
	Minutes  int    `json:"minutes"`
	Requests int64  `json:"requests"`
	Before   int64  `json:"before"` // were refused
	Least    int64  `json:"least"`
	Most     int64  `json:"most"`
	Callers  int64  `json:"callers"` // at least
}

func wouldRefuseOf(w *service.WouldRefuse) *wouldRefuse {
	switch {
	case w == nil:
		return nil
	case w.Unknown != "":
		return &wouldRefuse{Sentence: w.Sentence()}
	}
	return &wouldRefuse{w.Sentence(), true, w.Minutes, w.Requests, w.Before, w.Least, w.Most, w.Callers}
}

func (c *call) validate() error {
	access, err := c.access()
	if err != nil {
		return err
	}

	var d draft
	if err := c.decode(&d); err != nil {
		return err
	}

	// Mistakes are the answer here, and no failure.
	p, faults := d.policy()
	v := verdict{Valid: len(faults) == 0, Errors: list(faults), MaySave: access.CanEdit(p.Apps)}

	// The limit may be right while other fields are not.
	if p.Limit.Validate() == nil {
		v.Limit = p.Limit.String()
	}
	if v.Valid {
		v.Sentence = p.Describe()
		w, err := c.o.Service.WouldRefuse(c.ctx(), c.actor, p)
		if err != nil {
			return err
		}
		v.WouldRefuse = wouldRefuseOf(w)
	}

	return c.send(http.StatusOK, v)
}
