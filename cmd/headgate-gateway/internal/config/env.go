// This file reads the settings of the environment.

package config

import (
	"fmt"
	"slices"
	"strings"
)

// envPrefix begins the variables of all programs of headgate, and gatewayPrefix those of this one.
const (
	envPrefix     = "HEADGATE_"
	gatewayPrefix = envPrefix + "GATEWAY_"
)

// others begin variables of other programs, which may stand in the same environment.
var others = []string{"HEADGATE_CONSOLE_"}

// Variable returns the environment variable of a setting, such as HEADGATE_GATEWAY_API_LISTEN of
// api-listen.
func Variable(name string) string {
	return gatewayPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// readEnvironment gives the values of the environment to the settings that have none yet. A
// variable that is empty is as one that is not there. A list has commas. It returns a warning for
// each variable that looks like one of headgate and is none.
func readEnvironment(environ []string, settings []setting) (warnings []string) {
	byVariable := map[string]*setting{}
	for i := range settings {
		if !settings[i].command {
			byVariable[Variable(settings[i].name)] = &settings[i]
		}
	}

	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		s := byVariable[name]
		switch {
		case s == nil && isOurs(name):
			warnings = append(warnings, unknown(name, settings))
		case s != nil && text != "" && len(s.given) == 0:
			s.given, s.from = []string{text}, name
			if s.isList {
				s.given = strings.Split(text, ",")
				for i := range s.given {
					s.given[i] = strings.TrimSpace(s.given[i])
				}
			}
		}
	}

	slices.Sort(warnings)
	return warnings
}

// isOurs reports whether a variable may be meant for this program.
func isOurs(name string) bool {
	if !strings.HasPrefix(name, envPrefix) {
		return false
	}
	return !slices.ContainsFunc(others, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// unknown returns the warning about a variable that is no setting.
func unknown(name string, settings []setting) string {
	best, distance := "", 0
	for i := range settings {
		if settings[i].command {
			continue
		}
		// A name without the part of the program is near to one with it.
		known := Variable(settings[i].name)
		d := min(editDistance(name, known), 1+editDistance(name, envPrefix+strings.TrimPrefix(known, gatewayPrefix)))
		if best == "" || d < distance {
			best, distance = known, d
		}
	}

	return fmt.Sprintf("the environment variable %q is no setting; the nearest is %s", clip(name), best)
}

// editDistance returns how many bytes have to be put in, left out or changed to make one text of
// the other.
func editDistance(a, b string) int {
	a, b = a[:min(len(a), 100)], b[:min(len(b), 100)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}

	return row[len(b)]
}
