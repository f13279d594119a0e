// Package serve holds the code that the example programs share: flags for the
// address and the store, exit statuses, listening, and a shutdown that lets
// requests finish.
package serve

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/core"
)

// Program is the part that differs between examples.
type Program interface {
	// Flags defines the flags of the program.
	Flags(*flag.FlagSet)

	// Open returns the application once the flags are parsed. Its error is about
	// the configuration.
	Open(core.Store) (*App, error)
}

// Main runs the program until it is told to stop, and exits.
func Main(name string, p Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	c := Call{Name: name, Args: os.Args[1:], Out: os.Stdout, Err: os.Stderr}
	status := c.Run(ctx, p)
	stop()
	os.Exit(status)
}

// Call is how a program was called.
type Call struct {
	Name     string
	Args     []string
	Out, Err io.Writer

	// Store, unless nil, is used instead of the one that -store names.
	Store core.Store
}

// Run serves until ctx ends. It returns the exit status: 2 for a configuration
// that cannot work, and 1 for any other failure, each with one line on Err.
func (c Call) Run(ctx context.Context, p Program) int {
	addr, open, err := c.parse(p)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return c.fail(2, err)
	}
	store, closeStore, err := open(StoreTimeout)
	if err != nil {
		return c.fail(1, err)
	}
	defer closeStore()
	app, err := p.Open(store)
	if err != nil {
		return c.fail(2, err)
	}
	if err := c.Serve(ctx, addr, app); err != nil {
		return c.fail(1, err)
	}
	return 0
}

func (c Call) fail(status int, err error) int {
	fmt.Fprintf(c.Err, "%s: %v\n", c.Name, OneLine(err))
	return status
}

// parse reads the command line.
func (c Call) parse(p Program) (addr string, open OpenStore, err error) {
	f := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&addr, "addr", "127.0.0.1:8080", "address to listen on")
	store := f.String("store", "memory", Stores)
	p.Flags(f)
	if err := f.Parse(c.Args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(c.Out)
			f.PrintDefaults()
		}
		return "", nil, err
	}
	if f.NArg() > 0 {
		return "", nil, fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	if _, _, fault := net.SplitHostPort(addr); fault != nil {
		err = fmt.Errorf("-addr: %q is not host:port", addr)
	}
	open, fault := ParseStore(*store)
	if fault != nil {
		err = errors.Join(err, fmt.Errorf("-store: %w", fault))
	}
	if c.Store != nil {
		open = func(time.Duration) (core.Store, func(), error) { return c.Store, func() {}, nil }
	}
	return addr, open, err
}

// OneLine puts the parts of a joined error into one line.
func OneLine(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// LogError writes an error to the log; it fits Config.OnError.
func LogError(_ context.Context, err error) { log.Print(OneLine(err)) }
