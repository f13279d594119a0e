package apply

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// These environment variables hold the console's URL and the token, if the flags do not.
const (
	EnvURL   = "HEADGATE_CONSOLE_URL"
	EnvToken = "HEADGATE_CONSOLE_TOKEN"
)

// The commands.
const (
	apply = "apply"
	diff  = "diff"
)

// IsCommand reports whether the first argument of the program is a command of this package.
func IsCommand(arg string) bool { return arg == apply || arg == diff }

// options are a command line that was read.
type options struct {
	command string
	paths   []string // files and directories
	url     *url.URL // of the console
	token   string
	apps    []string // of whose policies the command is; nil means all
	prune   bool     // policies of the applications that no file has are deleted
	dryRun  bool

	pruneOverrides bool // overrides of the policies in the files of overrides that those do not have are removed

	comment string
	timeout time.Duration
}

// given holds the values of the command line.
type given struct {
	options
	address   string
	tokenFile string
	insecure  bool
}

// parse reads a command line that begins with the command. Its errors name every mistake,
// and no token. If the flags ask for help, it is written to usage, and the error is
// flag.ErrHelp.
func parse(args []string, env func(string) string, usage io.Writer) (options, error) {
	g := given{options: options{command: args[0]}}
	flags := g.flags(usage)
	if err := flags.Parse(args[1:]); err != nil {
		return options{}, err
	}

	// All mistakes are collected, so that one run shows them all.
	var errs []error
	check := func(name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}

	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("the argument %q is not a flag", textform.Clip(flags.Arg(0))))
	}
	if len(g.paths) == 0 || slices.Contains(g.paths, "") {
		check("-f", errors.New("it is missing; name a directory or a file"))
	}

	for _, app := range g.apps {
		check("-app", policy.CheckApp(app))
	}

	slices.Sort(g.apps)
	g.apps = slices.Compact(g.apps)

	check("-comment", textform.Check(g.comment, service.MaxComment))
	if g.timeout <= 0 {
		check("-timeout", errors.New("it is not above 0"))
	}

	// They say only what is wrong, and never the value: a log of a build may show them.
	check("-url", g.readURL(env))
	check("-token-file", g.readToken(env))

	return g.options, errors.Join(errs...)
}

// flags returns the flags of the command, which write to g.
func (g *given) flags(usage io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("headgate-console "+g.command, flag.ContinueOnError)
	f.SetOutput(usage)

	f.Usage = func() {
		fmt.Fprintf(usage, "Usage: headgate-console %s -f DIR -url URL [flags]\n\n%s\n\n",
			g.command, summaries[g.command])
		f.PrintDefaults()
	}

	f.Func("f", "`directory` of YAML files with policies and of overrides.json files, or such a file; may be repeated",
		config.AppendTo(&g.paths))
	f.StringVar(&g.address, "url", "", "`URL` of the console, such as https://console.example.com; also in "+EnvURL)
	f.StringVar(&g.tokenFile, "token-file", "",
		"`file` with an API token of the console; else the token comes from "+EnvToken)
	f.Func("app", "`application` whose policies are meant; may be repeated, and without it all are",
		config.AppendTo(&g.apps))
	f.BoolVar(&g.prune, "prune", false, "delete the policies that are in no file, "+
		"if all their applications are named by -app, or without it by the files")
	f.BoolVar(&g.pruneOverrides, "prune-overrides", false, "remove the overrides that an overrides.json does not "+
		"have, of the policies that it names")
	f.DurationVar(&g.timeout, "timeout", 3*time.Minute, "give up after this `time`")
	f.BoolVar(&g.insecure, "insecure-http", false, "send the token in the clear to another machine")

	// These are for a command that writes.
	if g.command == apply {
		f.BoolVar(&g.dryRun, "dry-run", false, "say what would be done, and do nothing")
		f.StringVar(&g.comment, "comment", "", "`text` for the history and the audit log, such as the id of a commit")
	}

	return f
}

var summaries = map[string]string{
	apply: "Writes the policies of the files to the console, all or none, and then the overrides, all\n" +
		"or none. It ends with 0 if the console is as the files say, and with 2 otherwise.",
	diff: "Shows how the policies and overrides of the console differ from the files. It ends with 0\n" +
		"if they do not differ, with 1 if they do, and with 2 if that is unknown.",
}

// readURL does not repeat what was given, as it may hold a password.
func (g *given) readURL(env func(string) string) error {
	if g.address == "" {
		g.address = env(EnvURL)
	}

	if g.address == "" {
		return errors.New("it is missing, and so is " + EnvURL)
	}

	u, err := url.Parse(g.address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("it is not of the form https://host")
	case u.User != nil:
		return errors.New("it holds a user; the console needs an API token")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("it holds more than a host and a path")
	case u.Scheme == "http" && !g.insecure && !config.IsLoopback(u.Hostname()):
		return errors.New("the token would travel in the clear: give an https URL, or -insecure-http")
	}

	g.url = u
	return nil
}

// maxTokenFile is more than the length of any token.
const maxTokenFile = 1024

// readToken does not repeat what it finds.
func (g *given) readToken(env func(string) string) error {
	g.token = env(EnvToken)
	// A file that was named wins over the environment.
	if g.tokenFile != "" {
		file, err := os.Open(g.tokenFile)
		if err != nil {
			return err
		}
		defer file.Close()

		data, err := io.ReadAll(io.LimitReader(file, maxTokenFile))
		if err != nil {
			return err
		}
		g.token = string(data)
	}

	if g.token = strings.TrimSpace(g.token); g.token == "" {
		return errors.New("there is no token in it, nor in " + EnvToken)
	}

	// A mistaken name of a file must not send another secret to the console.
	odd := func(c rune) bool { return c <= ' ' || c > '~' }
	if !strings.HasPrefix(g.token, auth.TokenPrefix) || strings.ContainsFunc(g.token, odd) {
		return fmt.Errorf("it is not an API token, which begins with %s", auth.TokenPrefix)
	}
	return nil
}
