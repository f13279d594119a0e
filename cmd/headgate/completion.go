package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

var completionCommand = command{
	name: "completion", args: "bash|zsh|fish", words: []string{"bash", "zsh", "fish"},
	does: "prints a script with which a shell completes commands and flags",
	examples: []string{
		"source <(headgate completion bash)",
		`headgate completion zsh > "${fpath[1]}/_headgate"`,
		"headgate completion fish > ~/.config/fish/completions/headgate.fish",
	},
}

// The commands list this one, so its setup cannot be a part of its declaration.
func init() {
	completionCommand.setup = func(*flag.FlagSet) func(*env, []string) int { return completion }
}

func completion(e *env, args []string) int {
	if len(args) != 1 {
		return e.fail("completion: name one shell: bash, zsh or fish")
	}
	switch args[0] {
	case "bash":
		completeBash(e.out)
	case "zsh":
		fmt.Fprint(e.out, "#compdef headgate\nautoload -U +X bashcompinit && bashcompinit\n")
		completeBash(e.out)
	case "fish":
		completeFish(e.out)
	default:
		return e.fail("completion: there is no script for %q, only for bash, zsh and fish", safe(args[0]))
	}
	return fine
}

// flagsOf returns the flags of a command.
func (c *command) flagsOf() (list []*flag.Flag) {
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	c.setup(f)
	f.VisitAll(func(f *flag.Flag) { list = append(list, f) })
	return list
}

func completeBash(w io.Writer) {
	var names []string
	var cases strings.Builder
	for _, c := range commands() {
		names = append(names, c.name)

		// A flag of one dash, as the help writes it.
		var flags []string
		for _, f := range c.flagsOf() {
			flags = append(flags, "-"+f.Name)
		}
		fmt.Fprintf(&cases, "    %s) words=%q ;;\n", c.name, strings.Join(append(flags, c.words...), " "))
	}

	fmt.Fprintf(w, `_headgate() {
  local words= current=${COMP_WORDS[COMP_CWORD]}
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W %q -- "$current"))
    return
  fi
  case ${COMP_WORDS[1]} in
    help) words=%[1]q ;;
%[2]s  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _headgate headgate
`, strings.Join(append(names, "help"), " "), cases.String())
}

func completeFish(w io.Writer) {
	for _, c := range commands() {
		fmt.Fprintf(w, "complete -c headgate -n __fish_use_subcommand -a %s -d '%s'\n", c.name, fishText(c.does))
		for _, f := range c.flagsOf() {
			// A flag with a value completes files, as the shell does by default.
			value, text := flag.UnquoteUsage(f)
			takes := ""
			if value != "" {
				takes = " -r"
			}
			fmt.Fprintf(w, "complete -c headgate -n '__fish_seen_subcommand_from %s' -o %s%s -d '%s'\n",
				c.name, f.Name, takes, fishText(text))
		}
		if len(c.words) > 0 {
			fmt.Fprintf(w, "complete -c headgate -n '__fish_seen_subcommand_from %s' -a '%s'\n", c.name,
				strings.Join(c.words, " "))
		}
	}
}

// fishText returns a text for single quotes of fish.
func fishText(s string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) }
