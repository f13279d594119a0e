package api

import "net/http"

// verdict is the result of checking a policy without saving it.
type verdict struct {
	Valid    bool    `json:"valid"`
	Errors   []fault `json:"errors"`
	Limit    string  `json:"limit"`    // its canonical text, or "" if it is wrong
	Sentence string  `json:"sentence"` // "" if there are mistakes
	MaySave  bool    `json:"may_save"` // the actor owns every application that it lists
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
	}

	return c.send(http.StatusOK, v)
}
