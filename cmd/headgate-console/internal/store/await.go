package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	my "github.com/go-sql-driver/mysql"
)

const (
	// knock is how long a server may take to answer that it is there.
	knock = 5 * time.Second

	// knockPause is the pause before it is asked again.
	knockPause = time.Second
)

// await waits until the server is there. It returns an error if the server refuses what the URL
// says, or ctx ends.
func (d *DB) await(ctx context.Context, logger *slog.Logger) error {
	where := d.engine.server()
	for told := false; where != ""; told = true {
		err := d.knock(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !d.engine.absent(err):
			return fmt.Errorf("%s: %w", where, err)
		}

		if !told {
			logger.WarnContext(ctx, "waiting for the database", "server", where, "error", err)
		}
		if !wait(ctx, knockPause) {
			return ctx.Err()
		}
	}
	return nil
}

// knock returns an error unless the server lets the user into the database.
func (d *DB) knock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, knock)
	defer cancel()
	return d.write.PingContext(ctx)
}

// server returns nothing: SQLite has none.
func (sqlite) server() string { return "" }

func (sqlite) absent(error) bool { return false }

func (m mysql) server() string { return m.config.Addr }

// mysqlBusy are the server's error numbers that time mends: connections, of the server and of the
// user, and a shutdown. With any other number it refuses the user, the password or the database.
var mysqlBusy = []uint16{1040, 1203, 1053}

// absent: a name that is not found may be that of a container which starts later.
func (mysql) absent(err error) bool {
	var refusal *my.MySQLError
	if errors.As(err, &refusal) {
		return slices.Contains(mysqlBusy, refusal.Number)
	}

	// A port that cannot exist, and what TLS finds wrong, stay wrong.
	var address *net.AddrError
	var broken *net.OpError
	if errors.As(err, &address) {
		return false
	}
	if errors.As(err, &broken) {
		return slices.Contains([]string{"dial", "read", "write"}, broken.Op)
	}

	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, my.ErrInvalidConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
