package store

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/mariadbtest"
	"github.com/headgate/headgate/internal/test"
)

// maria is one server for all tests of the package.
var maria mariadbtest.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	maria.Close()
	test.Exit(code)
}

// everyEngine runs a test on an empty database of each engine.
func everyEngine(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) {
		test(t, "sqlite://"+filepath.Join(t.TempDir(), "a b?c#d%.db"))
	})
	t.Run("mariadb", func(t *testing.T) { test(t, maria.Server(t).Database(t)) })
}

// patience bounds a transaction, far above what a busy machine needs.
const patience = 3 * time.Minute

// open opens a database for the test.
func open(t testing.TB, url string) *DB {
	t.Helper()
	db, err := Open(t.Context(), Options{URL: url, Timeout: patience})
	must(t, err)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
