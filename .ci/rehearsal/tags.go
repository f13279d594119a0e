package main

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// tags returns the tags of a release in rounds. A module requires modules of earlier rounds
// alone, so its go.mod can name them when their tags are pushed. Modules under internal are
// for the repository's own tests and get none.
func tags(all []*mod, version string) (rounds [][]string, err error) {
	waiting := slices.DeleteFunc(slices.Clone(all), func(m *mod) bool {
		return strings.Contains(m.path+"/", "/internal/")
	})

	for len(waiting) > 0 {
		var round []string
		var later []*mod
		for _, m := range waiting {
			if m.requiresAny(waiting) {
				later = append(later, m)
			} else {
				round = append(round, m.tag(version))
			}
		}

		if len(round) == 0 {
			return nil, fmt.Errorf("%s requires itself by way of other modules, so no order of tags is right", later[0].path)
		}
		rounds, waiting = append(rounds, round), later
	}
	return rounds, nil
}

// requiresAny reports whether the module requires one of the others.
func (m *mod) requiresAny(others []*mod) bool {
	return slices.ContainsFunc(m.gomod.Require, func(r *modfile.Require) bool {
		return slices.ContainsFunc(others, func(o *mod) bool { return o.path == r.Mod.Path })
	})
}

// tag returns the tag of the module's version: that of a module below the root begins with its folder.
func (m *mod) tag(version string) string {
	return strings.TrimPrefix(strings.TrimPrefix(m.path, root)+"/"+version, "/")
}
