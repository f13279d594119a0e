// This file writes the table of all settings.

package config

import (
	"cmp"
	"fmt"
	"strings"
)

// Table returns the table of all settings in Markdown, one a line, in the order of the usage.
func Table() string {
	var b strings.Builder
	b.WriteString("| flag, and name in the file | variable | default | a change | |\n|---|---|---|---|---|\n")
	for _, s := range new(given).settings() {
		if s.command {
			continue
		}
		name := "`" + s.name + "`"
		if s.flagOnly {
			name += ", a flag alone"
		}
		usage := strings.ReplaceAll(strings.ReplaceAll(s.usage, "|", `\|`), "`", "*")
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", name, Variable(s.name), cmp.Or(s.standard, " "), s.live, usage)
	}

	return b.String()
}
