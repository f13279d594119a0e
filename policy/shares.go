// This file has the shares of keys and of limits in a policy.

package policy

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate/core"
)

// checkShares reports what is wrong with Enforce and Warn.
func checkShares(p *Policy, mistake func(field string, err error)) {
	parts, err := parseRecipe(p.Key)
	if p.Enforce > core.Whole {
		mistake("enforce", fmt.Errorf("%s is more than %s", p.Enforce, core.Whole))
	} else if err == nil && parts[0].kind == "global" && p.Enforce > 0 && p.Enforce < core.Whole {
		mistake("enforce", errors.New("all callers are counted together, so the policy is in force for all or for "+
			"none"))
	}
	if p.Warn >= core.Whole {
		mistake("warn", fmt.Errorf("%s is not below %s", p.Warn, core.Whole))
	}
}

// shareWords describes Enforce and Warn.
func shareWords(p *Policy) string {
	s := ""
	if p.Enforce > 0 && p.Enforce < core.Whole && p.Mode != Shadow {
		s += fmt.Sprintf("; in force for %s of them, all others pass", p.Enforce)
	}
	if p.Warn > 0 {
		s += fmt.Sprintf("; reported from %s on", p.Warn)
	}
	return s
}
