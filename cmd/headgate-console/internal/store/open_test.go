package store

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
)

// lines is a writer that hands on each write.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

func TestOpenSaysWhatItDoes(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		// The first start runs the migrations, the second one finds nothing to do.
		for start, want := range []string{"opening 0001", "opening"} {
			log := make(lines, 100)
			db, err := Open(t.Context(), Options{URL: url, Logger: slog.New(slog.NewTextHandler(log, nil))})
			must(t, err)
			db.Close()
			close(log)

			// Each is a line of its own, in this order.
			var all string
			for line := range log {
				all += line
			}
			said := regexp.MustCompile(`opening|0001_|database is open`).FindAllString(all, -1)
			if words := strings.ReplaceAll(strings.Join(said, " "), "_", ""); words != want+" database is open" {
				t.Errorf("start %d says %q, want %q", start, words, want)
			}
		}
	})
}
