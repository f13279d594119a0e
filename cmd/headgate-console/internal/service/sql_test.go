package service

import (
	"database/sql"
	"strings"
	"testing"
)

// raw opens the database past the store, for statements that no program should
// run.
func raw(t testing.TB, url string) *sql.DB {
	t.Helper()
	engine, address := "sqlite", strings.TrimPrefix(url, "sqlite://")
	if rest, ok := strings.CutPrefix(url, "mysql://"); ok {
		login, rest, _ := strings.Cut(rest, "@")
		host, name, _ := strings.Cut(rest, "/")
		engine, address = "mysql", login+"@tcp("+host+")/"+name
	}
	db := must(sql.Open(engine, address))
	return db
}

func (w *world) sql(statement string) {
	w.t.Helper()
	db := raw(w.t, w.url)
	defer db.Close()
	if _, err := db.ExecContext(w.t.Context(), statement); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}
