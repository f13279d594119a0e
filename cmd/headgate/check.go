package main

import (
	"flag"
	"fmt"
	"slices"
)

var checkCommand = command{
	name: "check", args: "FILE…",
	does: "finds every mistake in files of policies, and what can never match",
	examples: []string{
		"headgate check limits.yaml",
		"headgate check -app shop limits.yaml",
		"headgate check -json limits.yaml | jq -r '.findings[].text'",
	},
	setup: func(f *flag.FlagSet) func(*env, []string) int {
		asJSON := f.Bool("json", false, "print JSON")
		app := f.String("app", "", "the `name` of an application, which some policy has to name")
		return func(e *env, files []string) int { return check(e, files, *app, *asJSON) }
	},
}

func check(e *env, files []string, app string, asJSON bool) int {
	if len(files) == 0 {
		return e.fail("check: no file is named; see headgate help check")
	}

	all, policies := []finding{}, 0
	for _, name := range files {
		p, err := e.readPolicies(name)
		if err != nil {
			return e.fail("check: %s", safe(err.Error()))
		}

		// A set with mistakes has no policies, so nothing can be said of its applications.
		if app != "" && p.count(mistake) == 0 && len(p.set.For(app)) == 0 {
			p.add(never, 1, 1, fmt.Errorf("no policy in force names the application %q", app))
		}
		policies += len(p.set)
		all = append(all, p.findings...)
	}

	// Whatever was found is a reason not to deploy the file.
	code := fine
	if len(all) > 0 {
		code = findings
	}
	if asJSON {
		return max(code, e.printJSON(map[string]any{"policies": policies, "findings": all}))
	}

	printFindings(e, all)
	if code == fine {
		fmt.Fprintf(e.out, "%s, no mistakes\n", plural(int64(policies), "policy", "policies"))
	}

	return code
}

// printFindings prints findings as compilers do, so that editors find their places.
func printFindings(e *env, all []finding) {
	for _, f := range all {
		kind := e.paint(red, f.Kind)
		if f.Kind == never {
			kind = e.paint(yellow, "never matches")
		}
		fmt.Fprintf(e.out, "%s:%d:%d: %s: %s\n", safe(f.File), f.Line, f.Column, kind, safe(f.Text))
	}
	if n := len(all); n > 0 {
		wrong := len(slices.DeleteFunc(slices.Clone(all), func(f finding) bool { return f.Kind != mistake }))
		fmt.Fprintf(e.out, "%s, %d that can never match\n", counted(int64(wrong), "mistake"), n-wrong)
	}
}

func plural(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + more
}
