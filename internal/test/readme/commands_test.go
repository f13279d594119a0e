package readme

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	flagIn     = regexp.MustCompile(`(?:^| )-([a-z][a-z0-9-]*)`)
	plainWord  = regexp.MustCompile(`^[a-z]+$`)
	ofHeadgate = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S+ )*(headgate(?:-gateway|-console)?)((?: +[^ |>]+)*)`)
	goRun      = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S+ )*go (?:-C (\S+) )?run (\S+)(.*)$`)
	goTest     = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S+ )*go (?:-C \S+ )?test (.*)$`)
	testName   = regexp.MustCompile(`-(run|bench)[ =](\S+)`)
)

// checkFlags checks the flags of inline code.
func (c *code) checkFlags(p *page, s span, note note) {
	if c.checkCommand(p, s, note) {
		return
	}

	// Elsewhere a hyphen is none of a flag.
	if !strings.HasPrefix(s.text, "-") {
		return
	}
	for _, m := range flagIn.FindAllStringSubmatch(s.text, -1) {
		if !c.anyFlag(m[1]) && m[1] != "h" {
			note(s.line, "no flag", "-"+m[1])
		}
	}
}

// checkCommand checks a command that runs a program of ours or a test, if it is one.
func (c *code) checkCommand(p *page, s span, note note) (is bool) {
	if m := goRun.FindStringSubmatch(s.text); m != nil {
		c.checkRun(p, span{s.line, "", m[3]}, path.Join(m[1], m[2]), note)
		return true
	}
	if m := goTest.FindStringSubmatch(s.text); m != nil {
		c.checkTest(span{s.line, "", m[1]}, note)
		return true
	}

	m := ofHeadgate.FindStringSubmatch(s.text)
	if m == nil {
		return false
	}

	// The first argument of headgate is a command, each with flags of its own.
	program, flags := m[1], c.flags["cmd/"+m[1]]
	words := strings.Fields(m[2])

	if program == "headgate" && len(words) > 0 && plainWord.MatchString(words[0]) {
		file, ok := c.commands[words[0]]
		if flags = c.flagsOf(file); !ok && words[0] != "help" && words[0] != "version" {
			note(s.line, "no command", "headgate "+words[0])
		}
	}

	for _, m := range flagIn.FindAllStringSubmatch(m[2], -1) {
		if !flags[m[1]] && m[1] != "h" {
			note(s.line, "no flag of "+program, "-"+m[1])
		}
	}
	return true
}

// checkTest checks that a test or benchmark has what -run or -bench of a command asks for.
func (c *code) checkTest(args span, note note) {
	for _, m := range testName.FindAllStringSubmatch(args.text, -1) {
		kind := map[string]string{"run": "Test", "bench": "Benchmark"}[m[1]]
		for part := range strings.SplitSeq(strings.Trim(m[2], "'"), "|") {
			part, _, _ = strings.Cut(part, "/") // the test, without its part
			part = strings.Trim(part, "^$")

			if part == "" || part == "." || slices.ContainsFunc(c.tests, func(name string) bool {
				return strings.HasPrefix(name, kind) && strings.Contains(name, part)
			}) {
				continue
			}
			note(args.line, "no "+strings.ToLower(kind), part)
		}
	}
}

// flagsOf returns the flags of the command in a file, with those of files that have no command.
func (c *code) flagsOf(file string) map[string]bool {
	own := map[string]bool{}
	for of, flags := range c.flags {
		// What a file without a command declares, several share.
		shared := path.Ext(of) == ".go" && path.Dir(of) == "cmd/headgate"
		for _, other := range c.commands {
			shared = shared && of != other
		}

		if of == file || shared {
			for f := range flags {
				own[f] = true
			}
		}
	}
	return own
}

// checkCommands checks the lines of a block that are commands.
func (c *code) checkCommands(p *page, b span, note note) {
	lines := strings.Split(b.text, "\n")
	for i := 0; i < len(lines); i++ {
		// The line is that of the first part.
		at, line := i, strings.TrimSpace(lines[i])
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + strings.TrimSpace(lines[i])
		}

		c.checkCommand(p, span{b.line + at, "", line}, note)
	}
}

// checkRun checks the arguments of the program in a folder, which is that of the page for ".".
func (c *code) checkRun(p *page, args span, dir string, note note) {
	if dir == "." {
		dir = path.Dir(p.path)
	}

	switch name, ok := strings.CutPrefix(dir, "cmd/"); {
	case strings.Contains(dir, "@"):
	case !c.files[dir]:
		note(args.line, "no folder", dir)
	case ok:
		c.checkCommand(p, span{args.line, "", name + args.text}, note)
	default:
		for _, m := range flagIn.FindAllStringSubmatch(args.text, -1) {
			if !c.flags[dir][m[1]] && m[1] != "h" {
				note(args.line, "no flag of "+dir, "-"+m[1])
			}
		}
	}
}
