package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/internal/test"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

func TestRunPrintsThePasswordOnce(t *testing.T) {
	c := config.Config{Listen: "127.0.0.1:0", DB: "sqlite://" + filepath.Join(t.TempDir(), "data", "console.db")}
	if got := start(t, c); !got {
		t.Error("the first start wrote no password")
	}
	if got := start(t, c); got {
		t.Error("the second start wrote a password")
	}
}

var (
	address  = regexp.MustCompile(`address=(\S+)`)
	password = regexp.MustCompile(`^      [a-z2-7]{26}$`)
)

// start runs the program until it has answered once, and reports whether it wrote
// a password.
func start(t *testing.T, c config.Config) (wrote bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	out, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, c, w)
		w.Close()
		ended <- err
	}()

	// The program is stopped only after it has printed its address and answered, or a start that
	// fails would pass.
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		wrote = wrote || password.MatchString(lines.Text())
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			healthy(t, m[1])
			stop()
		}
	}

	if err := <-ended; err != nil {
		t.Error(err)
	}
	return wrote
}

func healthy(t *testing.T, addr string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://" + addr + "/healthz")
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("the status is %d", r.StatusCode)
	}
}

func TestRunRecoverPrintsAPasswordAndEnds(t *testing.T) {
	c := config.Config{DB: "sqlite://" + filepath.Join(t.TempDir(), "console.db"), Recover: "somebody"}
	var out strings.Builder
	if err := run(t.Context(), c, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "somebody has the one-time password") {
		t.Errorf("the output is %q", out.String())
	}
}
