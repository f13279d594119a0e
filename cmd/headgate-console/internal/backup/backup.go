// Package backup has the commands backup and restore, which copy the database of a console to a
// file and back.
package backup

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

const (
	backup  = "backup"
	restore = "restore"
)

// IsCommand reports whether a name is that of a command.
func IsCommand(name string) bool { return name == backup || name == restore }

// options are the arguments of a command.
type options struct {
	command, db, data, file string
	force                   bool
}

// Main runs a command, whose name is the first argument, and returns the exit code of the program:
// 0, or 2 if it has failed.
func Main(ctx context.Context, args []string, env func(string) string, out, bad io.Writer) int {
	o, err := parse(args, env, bad)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}

	// Both write a line of what they have done, and nothing if they fail.
	if err == nil && o.command == backup {
		err = o.backup(ctx, out)
	} else if err == nil {
		err = o.restore(ctx, out)
	}
	if err != nil {
		fmt.Fprintf(bad, "%s: %v\n", args[0], err)
		return 2
	}
	return 0
}

func parse(args []string, env func(string) string, bad io.Writer) (o options, err error) {
	o.command = args[0]
	f := flag.NewFlagSet(o.command, flag.ContinueOnError)
	f.SetOutput(bad)
	f.Usage = func() {
		fmt.Fprintf(bad, "Usage: headgate-console %s [flags] FILE\n\n%s\n\n", o.command, o.explain())
		f.PrintDefaults()
	}

	// The database is named as for a console that serves.
	config.DatabaseFlags(f, &o.db, &o.data)
	f.BoolVar(&o.force, "force", false, "replace what is there")

	if err := f.Parse(args[1:]); err != nil {
		return o, err
	}
	if f.NArg() != 1 || f.Arg(0) == "" {
		return o, errors.New("name one file, behind the flags")
	}

	o.file = f.Arg(0)
	o.db, err = config.Database(cmp.Or(o.db, env(config.EnvDB)), o.data)
	return o, err
}

func (o options) explain() string {
	if o.command == backup {
		return "It writes a copy of the database of a console, which may run meanwhile, to FILE."
	}
	return "It brings a database to the state of FILE, which the command backup has written. " +
		"End all consoles of the database before."
}

// backup writes the file beside its place first, so that there never is a part of one.
func (o options) backup(ctx context.Context, out io.Writer) error {
	if _, err := os.Lstat(o.file); err == nil && !o.force {
		return fmt.Errorf("%s exists: -force replaces it", o.file)
	}

	dir, err := os.MkdirTemp(filepath.Dir(o.file), ".backup-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	written := filepath.Join(dir, "backup.db")
	if err := store.Backup(ctx, o.db, written); err != nil {
		return err
	}

	// The size is that of what is about to get the name, so that nothing fails after it has it.
	info, err := os.Stat(written)
	if err != nil {
		return err
	}
	if err := os.Rename(written, o.file); err != nil {
		return err
	}

	fmt.Fprintf(out, "%s has %d bytes\n", o.file, info.Size())
	return nil
}

func (o options) restore(ctx context.Context, out io.Writer) error {
	err := store.Restore(ctx, o.db, o.file, o.force)
	if errors.Is(err, store.ErrExists) {
		return fmt.Errorf("%w: -force replaces all that it has", err)
	}
	if err == nil {
		fmt.Fprintf(out, "the database is as in %s\n", o.file)
	}
	return err
}
