package store

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"
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
		for start, want := range []string{"opening 0001 0002 0003 0004 0005 0006", "opening"} {
			log := make(lines, 100)
			db, err := Open(t.Context(), Options{URL: url, Logger: slog.New(slog.NewTextHandler(log, nil)),
				remind: time.Hour})
			must(t, err)
			db.Close()
			close(log)

			// Each is a line of its own, in this order.
			var all string
			for line := range log {
				all += line
			}
			said := regexp.MustCompile(`opening|000[1-6]_|database is open`).FindAllString(all, -1)
			if words := strings.ReplaceAll(strings.Join(said, " "), "_", ""); words != want+" database is open" {
				t.Errorf("start %d says %q, want %q", start, words, want)
			}
		}
	})
}

// A start that waits for another console says so until it is its turn.
func TestOpenSaysThatItWaits(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		log := make(lines, 10000)

		// The lock is held while the second console opens, which has to say so every millisecond.
		opened := make(chan error, 1)
		held := db.engine.alone(t.Context(), db.write, func(runner) error {
			go func() {
				second, err := Open(t.Context(), Options{URL: url, Logger: slog.New(slog.NewTextHandler(log, nil)),
					remind: time.Millisecond})
				if err == nil {
					err = second.Close()
				}
				opened <- err
			}()

			for line := range log {
				if strings.Contains(line, "not ready yet") && strings.Contains(line, "another console that migrates") {
					break
				}
			}
			return nil
		})

		if held != nil {
			t.Fatal(held)
		}

		// What it still says has to be read, or it would wait for its reader.
		go func() {
			for range log {
			}
		}()

		if err := <-opened; err != nil {
			t.Error(err)
		}
		close(log)
	})
}
