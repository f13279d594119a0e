package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	my "github.com/go-sql-driver/mysql"
)

const (
	mysqlPort        = "3306"
	mysqlConnections = 16
	mysqlDial        = 5 * time.Second
	mysqlIdle        = 5 * time.Minute // below the wait_timeout of most servers

	// migrationLock is the name of the server's lock for migrations, and
	// migrationPatience is the number of seconds to wait for it.
	migrationLock     = "headgate-console-migration"
	migrationPatience = 60
)

// mysql is MySQL or MariaDB.
type mysql struct{ config *my.Config }

func newMySQL(text string) (engine, error) {
	u, err := url.Parse(text)
	if err != nil { // the text of err would show the password
		return nil, errors.New("database: the URL is not of the form mysql://user:password@host:port/database")
	}

	c := my.NewConfig()
	c.Net = "tcp"
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.DBName = strings.TrimPrefix(u.Path, "/")
	if c.DBName == "" || u.Hostname() == "" {
		return nil, errors.New("database: the URL names no host or no database: " +
			"mysql://user:password@host:port/database")
	}

	c.Addr = u.Host
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), mysqlPort)
	}

	if err := mysqlParameters(c, u.Query()); err != nil {
		return nil, err
	}

	// Names are compared as SQLite compares them: byte by byte.
	c.Collation = "utf8mb4_bin"
	c.Timeout = mysqlDial
	// A row that is written as it was counts too, as it does in SQLite: it exists.
	c.ClientFoundRows = true
	c.InterpolateParams = true // one round trip for a statement instead of three
	// A server that was demoted is left, so that the next connection finds the one that can write.
	c.RejectReadOnly = true
	c.Params = map[string]string{"sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"}

	// The driver's own log would not be in the console's form. What it has to say comes as errors
	// too.
	c.Logger = &my.NopLogger{}
	return mysql{config: c}, nil
}

func mysqlParameters(c *my.Config, q url.Values) error {
	for name := range q {
		if name != "tls" {
			return errors.New("database: the only parameter of the URL is tls")
		}
	}
	c.TLSConfig = q.Get("tls")
	if !slices.Contains([]string{"", "true", "false", "skip-verify", "preferred"}, c.TLSConfig) {
		return errors.New("database: the parameter tls is not true, false, skip-verify or preferred")
	}
	return nil
}

func (mysql) name() string { return "mysql" }

func (m mysql) open() (read, write *sql.DB, err error) {
	connector, err := my.NewConnector(m.config)
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(repeatable{connector})
	db.SetMaxOpenConns(mysqlConnections)
	db.SetMaxIdleConns(mysqlConnections)
	db.SetConnMaxIdleTime(mysqlIdle)
	return db, db, nil
}

// repeatable makes connections whose transactions see one instant and whose readers wait for no
// writer, also on a server that has another isolation level by default.
type repeatable struct{ driver.Connector }

func (r repeatable) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := r.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}

	// MySQL and MariaDB have no name in common for the variable, so it is a statement of its own.
	const level = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, level, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// alone runs f under a lock of the server, which ends with the connection.
func (mysql) alone(ctx context.Context, db *sql.DB, f func(runner) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()

	var got sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", migrationLock, migrationPatience).Scan(&got)
	if err != nil {
		return err
	}
	if got.Int64 != 1 {
		return errors.New("another console is still migrating the database")
	}

	// The connection goes back to the pool, so the lock is released even if ctx has ended.
	defer conn.ExecContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK(?)", migrationLock)
	return f(conn)
}

// mysqlKinds has the server's error numbers that the console distinguishes.
var mysqlKinds = map[uint16]kind{
	1062: kindExists,
	1451: kindReferenced, 1452: kindReferenced, // a row has children, or no parent
	1020: kindContended, 1205: kindContended, 1213: kindContended, // changed since the first read, waited, deadlock
	1021: kindFull, 1114: kindFull, // the disk, a table
	1040: kindUnavailable, 1203: kindUnavailable, // too many connections
	1044: kindUnavailable, 1045: kindUnavailable, 1049: kindUnavailable, // no access, no database
	1053: kindUnavailable, 1290: kindUnavailable, 1792: kindUnavailable, // shutting down, reading only
	1317: kindUnavailable, 1927: kindUnavailable, 1969: kindUnavailable, // killed, out of time
}

// Other errors of the server.
const (
	mysqlDuplicateIndex = 1061
	mysqlNoTable        = 1146
)

// places has the name of the database. Consoles may know one server by several addresses, and a
// server may be replaced by another one behind the same address.
func (m mysql) places() []string { return []string{"database:" + m.config.DBName} }

func (mysql) addUp() string {
	sums := eachCount(func(c string) string { return c + " = " + c + " + VALUES(" + c + ")" })
	return " ON DUPLICATE KEY UPDATE " + sums
}

func (mysql) byPrimaryKey() string { return " FORCE INDEX (PRIMARY)" }

// repeated: MySQL, unlike MariaDB, cannot be told to leave out an index that exists.
func (mysql) repeated(err error) bool {
	var e *my.MySQLError
	return errors.As(err, &e) && e.Number == mysqlDuplicateIndex
}

func (mysql) kind(err error) kind {
	var e *my.MySQLError
	if errors.As(err, &e) {
		return mysqlKinds[e.Number]
	}
	var n net.Error
	var s syscall.Errno
	if errors.As(err, &n) || errors.As(err, &s) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, my.ErrInvalidConn) || errors.Is(err, my.ErrMalformPkt) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return kindUnavailable
	}
	return kindOther
}
