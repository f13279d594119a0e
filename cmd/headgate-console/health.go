package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// healthCommand is the name of the command of askHealth.
	healthCommand = "health"

	// healthTime bounds it, above the time that the console gives its database.
	healthTime = 4 * time.Second

	// maxHealth is the largest answer that is shown.
	maxHealth = 4 << 10
)

// askHealth asks a console whether it is healthy, for an image in which no other program could.
// It writes the answer, and returns 0 if that is 200, 1 if it is not, and 2 for a mistake in the
// arguments.
func askHealth(ctx context.Context, args []string, _ func(string) string, out, bad io.Writer) int {
	f := flag.NewFlagSet(healthCommand, flag.ContinueOnError)
	f.SetOutput(bad)
	base := f.String("url", "http://127.0.0.1:8080", "`URL` of the console")
	f.Usage = func() {
		fmt.Fprintf(bad, "Usage: headgate-console %s [flags]\n\n"+
			"It ends with 0 if the console is healthy, and with 1 otherwise.\n\n", healthCommand)
		f.PrintDefaults()
	}

	err := f.Parse(args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("the argument %q is not a flag", f.Arg(0))
		fmt.Fprintf(bad, "%s: %v\n", healthCommand, err)
	}
	if err != nil {
		return 2
	}

	if err := health(ctx, *base, out); err != nil {
		fmt.Fprintf(bad, "%s: %v\n", healthCommand, err)
		return 1
	}
	return 0
}

// health returns an error unless the console at a URL is healthy, and writes its answer.
func health(ctx context.Context, base string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/healthz", nil)
	if err != nil {
		return err
	}

	client := &http.Client{Transport: &http.Transport{}} // no proxy of the environment
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()

	if _, err := io.Copy(out, io.LimitReader(answer.Body, maxHealth)); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}
