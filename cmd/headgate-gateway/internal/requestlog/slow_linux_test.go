package requestlog

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/quietlog"
)

// Neither a request nor the end of the program waits for a file that takes no more, however often
// it is opened anew.
func TestNothingWaitsForAFileThatIsSlow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()

	events := quietlog.New(slog.New(slog.DiscardHandler))
	defer events.Close()
	l, err := Open(Options{Path: path, Events: events})
	if err != nil {
		t.Fatal(err)
	}

	// More than a pipe holds.
	put := func() bool {
		line := bytes.Repeat([]byte("x"), 4096)
		return l.put(&line)
	}
	for range 100 {
		put()
	}

	for range 3 {
		if err := l.Reopen(); err != nil {
			t.Error(err)
		}
	}
	if !put() {
		t.Error("the log is closed")
	}
	if err := l.Close(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("closed: %v", err)
	}
	if err := l.Reopen(); err == nil || put() {
		t.Error("the log is open after its end")
	}
}
