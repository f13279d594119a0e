package serve

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// program serves nothing but a greeting.
type program struct {
	fault error
	name  string
}

func (p *program) Flags(f *flag.FlagSet) { f.StringVar(&p.name, "name", "world", "whom to greet") }

func (p *program) Open(store core.Store) (*App, error) {
	if p.fault != nil {
		return nil, p.fault
	}
	l, err := limiter.New(limiter.Config{Store: store})
	if err != nil {
		return nil, err
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, p.name) })
	return &App{Limiter: l, Server: HTTP(hello)}, nil
}

// run runs the program, which ends as soon as it serves.
func run(p Program, args ...string) (status int, out, errs string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var o, e strings.Builder
	status = Call{Name: "greet", Args: args, Out: &o, Err: &e}.Run(ctx, p)
	return status, o.String(), e.String()
}

func TestAConfigurationThatCannotWorkIsOneLineAndStatus2(t *testing.T) {
	rows := []struct {
		fault      error
		args, line string
	}{
		{nil, "-addr foo", `greet: -addr: "foo" is not host:port`},
		{nil, "-addr foo -store y", `greet: -addr: "foo" is not host:port; -store: "y" is none of memory, miniredis, redis://host:port/db, sentinel://…, cluster://…`},
		{nil, "stray", `greet: unknown argument "stray"`},
		{nil, "-bogus", `greet: flag provided but not defined: -bogus`},
		{nil, "-store redis://:secret@127.0.0.1:1/x", `greet: -store: "redis://:xxxxx@127.0.0.1:1/x": redis: invalid database number: "x"`},
		{errors.Join(errors.New("one"), errors.New("two")), "", "greet: one; two"},
	}
	for _, row := range rows {
		status, out, errs := run(&program{fault: row.fault}, strings.Fields(row.args)...)
		if status != 2 || out != "" || errs != row.line+"\n" {
			t.Errorf("%s: %d %q %q", row.args, status, out, errs)
		}
	}
}

func TestHelpListsTheFlagsOfBoth(t *testing.T) {
	status, out, errs := run(&program{}, "-h")
	if status != 0 || errs != "" || !strings.Contains(out, "-addr") || !strings.Contains(out, "whom to greet") {
		t.Errorf("%d %q %q", status, out, errs)
	}
}

func TestAnAddressInUseIsStatus1(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	status, out, errs := run(&program{}, "-addr", l.Addr().String())
	if status != 1 || out != "" || strings.Count(errs, "\n") != 1 {
		t.Errorf("%d %q %q", status, out, errs)
	}
}

func TestAProgramThatIsToldToEndBeforeItServesEnds(t *testing.T) {
	for _, store := range []string{"memory", "miniredis"} {
		status, out, errs := run(&program{}, "-addr", "127.0.0.1:0", "-store", store)
		if store == "miniredis" && strconv.IntSize < 64 {
			if status != 1 || out != "" || !strings.Contains(errs, "32 bits") {
				t.Errorf("%s: %d %q %q", store, status, out, errs)
			}
			continue
		}
		if status != 0 || errs != "" || !strings.HasPrefix(out, "listening on http://127.0.0.1:") {
			t.Errorf("%s: %d %q %q", store, status, out, errs)
		}
	}
}

// broken is a server that fails.
type broken struct{ fault error }

func (b broken) Serve(net.Listener) error       { return b.fault }
func (b broken) Shutdown(context.Context) error { return nil }

func TestAServerThatFailsEndsTheProgram(t *testing.T) {
	fault := errors.New("out of order")
	app := &App{Limiter: limiter.MustNew(limiter.Config{Store: model{}}), Server: broken{fault}}
	if err := (Call{Out: io.Discard}).Serve(t.Context(), "127.0.0.1:0", app); !errors.Is(err, fault) {
		t.Errorf("%v", err)
	}
}

// model is a store that nobody asks.
type model struct{ core.Store }
