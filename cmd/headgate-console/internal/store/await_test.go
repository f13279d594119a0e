package store

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"

	my "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/cmd/headgate-console/internal/mariadbtest"
	"github.com/headgate/headgate/internal/test/freeport"
)

// A console that is started before its server says once for what it waits, and opens.
func TestOpenWaitsForTheServer(t *testing.T) {
	server := mariadbtest.Start(t)
	url := server.Database(t)
	server.Kill()

	log, opened := make(lines, 1000), make(chan error, 1)
	go func() {
		db, err := Open(t.Context(), Options{URL: url, Wait: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err == nil {
			err = db.Close()
		}
		close(log)
		opened <- err
	}()

	// The server comes after the console has found none.
	told, again := 0, 0
	for line := range log {
		// What it says names the server and the cause.
		if strings.Contains(line, `msg="waiting for the database"`) && strings.Contains(line, "server="+server.Addr) &&
			strings.Contains(line, "connection refused") {
			if told++; told == 1 {
				server.Restart(t)
			}
		}
		again += strings.Count(line, "the database is open")
	}

	if err := <-opened; err != nil || told != 1 || again != 1 {
		t.Errorf("it waited %d times and opened %d times: %v", told, again, err)
	}
}

// The end of the context ends the wait, and is no fault of the database.
func TestOpenStopsWaiting(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	// Nothing listens at the address.
	url := "mysql://u:secret@" + freeport.Addr(t) + "/d"
	log, opened := make(lines, 1000), make(chan error, 1)
	go func() {
		_, err := Open(ctx, Options{URL: url, Wait: true,
			Logger: slog.New(slog.NewTextHandler(log, nil))})
		opened <- err
		close(log)
	}()

	for line := range log {
		if strings.Contains(line, "waiting for the database") {
			stop()
		}
	}
	if err := <-opened; !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

// What the server refuses is an error at once, which names the server and shows no password.
func TestOpenDoesNotWaitForAnotherAnswer(t *testing.T) {
	right := maria.Server(t).Database(t)
	user, rest, _ := strings.Cut(strings.TrimPrefix(right, "mysql://"), "@")
	name, password, _ := strings.Cut(user, ":")
	where, database, _ := strings.Cut(rest, "/")

	for what, c := range map[string]struct{ url, want string }{
		"password": {"mysql://" + name + ":wrong-word@" + rest, "1045"},
		"user":     {"mysql://other:wrong-word@" + rest, "1045"},
		"database": {"mysql://" + user + "@" + where + "/not" + database, "1049"},
		"TLS":      {right + "?tls=true", "TLS"},
		"port":     {"mysql://" + user + "@127.0.0.1:99999/d", "invalid port"},
	} {
		_, err := Open(t.Context(), Options{URL: c.url, Wait: true})
		if err == nil {
			t.Errorf("%s: it opens", what)
			continue
		}

		// The password of the URL is neither in the text of the driver nor in ours.
		text := err.Error()
		if !strings.HasPrefix(text, "database: 127.0.0.1:") || !strings.Contains(text, c.want) ||
			strings.Contains(text, "wrong-word") || strings.Contains(text, password) {
			t.Errorf("%s: the error is %q, want %q in it", what, text, c.want)
		}
	}
}

func TestAbsentIsWhatTimeMends(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

	// The first are of a server that starts, and of one that is too busy.
	for _, c := range []struct {
		err  error
		want bool
	}{
		{dial(syscall.ECONNREFUSED), true},
		{dial(syscall.EHOSTUNREACH), true},
		{dial(&net.DNSError{Err: "no such host", Name: "db", IsNotFound: true}), true},
		{&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, true},
		{driver.ErrBadConn, true},
		{my.ErrInvalidConn, true},
		{fmt.Errorf("handshake: %w", io.EOF), true},
		{context.DeadlineExceeded, true},
		{&my.MySQLError{Number: 1040}, true},
		{&my.MySQLError{Number: 1053}, true},

		{&my.MySQLError{Number: 1044}, false},
		{&my.MySQLError{Number: 1045}, false},
		{&my.MySQLError{Number: 1049}, false},
		{&my.MySQLError{Number: 1130}, false}, // the address of the console
		{dial(&net.AddrError{Err: "invalid port", Addr: "99999"}), false},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(40)}, false},
		{my.ErrNoTLS, false},
		{my.ErrMalformPkt, false}, // it is another program
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, false},
	} {
		if got := (mysql{}).absent(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}
