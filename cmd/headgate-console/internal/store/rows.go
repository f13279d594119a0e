package store

import (
	"database/sql"
	"database/sql/driver"
	"reflect"
	"slices"
	"strings"
	"time"
)

// rowsOf is a table whose rows are structs of type R. Its columns are the exported fields, in their
// order, by the names in their tags db, or those of severalColumns. A list is no column. A field
// with the tag sql is that expression, which is only read, and one with set:"once" is written by
// insert and replace alone. A time is stored as by [Micros]. Tags are constants, and so the
// statements are made of constants.
type rowsOf[R any] struct {
	name    string
	columns []column
	written string // the names of the columns that insert writes
	read    string // SELECT all columns FROM the table
}

// column is a column of a table, or an expression, which is only read.
type column struct {
	text             string
	expression, once bool
}

func newRows[R any](name string) rowsOf[R] {
	r := rowsOf[R]{name: name, columns: columnsOf(reflect.TypeFor[R]())}
	if len(variables(nil, reflect.ValueOf(new(R)).Elem())) != len(r.columns) {
		panic("store: a row of " + name + " has a field without a tag")
	}

	var written, read []string
	for _, c := range r.columns {
		if c.expression {
			read = append(read, c.text)
			continue
		}
		written, read = append(written, c.text), append(read, name+"."+c.text)
	}
	r.written = strings.Join(written, ", ")
	r.read = "SELECT " + strings.Join(read, ", ") + " FROM " + name + " "
	return r
}

// severalColumns is a field of several columns, whose names stand in no tag.
type severalColumns interface {
	columns() string // separated by commas
}

// columnsOf returns a column for each of the variables of a struct.
func columnsOf(row reflect.Type) (list []column) {
	for i := range row.NumField() {
		f := row.Field(i)
		if f.Anonymous {
			list = append(list, columnsOf(f.Type)...)
		}
		if expression, ok := f.Tag.Lookup("sql"); ok {
			list = append(list, column{text: expression, expression: true})
		}
		names, named := f.Tag.Lookup("db")
		if s, ok := reflect.Zero(f.Type).Interface().(severalColumns); ok {
			names, named = s.columns(), true
		}
		if named {
			for name := range strings.SplitSeq(names, ",") {
				list = append(list, column{text: name, once: f.Tag.Get("set") == "once"})
			}
		}
	}
	return list
}

// variables adds pointers to what a row has for its columns: to v itself, or to its exported fields
// and elements, if it has some.
func variables(list []any, v reflect.Value) []any {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		list = append(list, (*storedTime)(v.Addr().Interface().(*time.Time)))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			list = variables(list, v.Field(i))
		}
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			list = variables(list, v.Index(i))
		}
	case v.Kind() != reflect.Slice && v.CanInterface():
		list = append(list, v.Addr().Interface())
	}
	return list
}

// storedTime reads and writes a time as a column has it.
type storedTime time.Time

// Scan implements [sql.Scanner].
func (s *storedTime) Scan(column any) error {
	var us sql.NullInt64
	err := us.Scan(column)
	*s = storedTime(Instant(us.Int64))
	return err
}

// Value implements [driver.Valuer].
func (s *storedTime) Value() (driver.Value, error) { return Micros(time.Time(*s)), nil }

// Instant returns the time that a column of microseconds has; 0 is the zero time.
func Instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Micros returns the microseconds of a time since the Unix epoch, or 0 for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// values adds pointers to the columns of a row that are written.
func (r *rowsOf[R]) values(list []any, row *R, once bool) []any {
	for i, v := range variables(nil, reflect.ValueOf(row).Elem()) {
		if c := r.columns[i]; !c.expression && (once || !c.once) {
			list = append(list, v)
		}
	}
	return list
}

// one returns the row that conditions select, or ErrNotFound.
func (r *rowsOf[R]) one(t *Tx, conditions string, args ...any) (R, error) {
	return readOne[R](t, r.read+conditions, args...)
}

// all returns the rows that conditions select.
func (r *rowsOf[R]) all(t *Tx, conditions string, args ...any) ([]R, error) {
	return readAll[R](t, r.read+conditions, args...)
}

// insert adds rows, or returns ErrExists or ErrReferenced.
func (r *rowsOf[R]) insert(t *Tx, rows ...R) error { return r.write(t, "INSERT INTO ", rows, "") }

// replace is insert for rows that may be there already.
func (r *rowsOf[R]) replace(t *Tx, rows ...R) error { return r.write(t, "REPLACE INTO ", rows, "") }

// maxBatch is how many rows a statement writes at most.
const maxBatch = 200

func (r *rowsOf[R]) write(t *Tx, verb string, rows []R, end string) error {
	for some := range slices.Chunk(rows, maxBatch) {
		var args []any
		for i := range some {
			args = r.values(args, &some[i], true)
		}
		q := verb + r.name + " (" + r.written + ") VALUES " + tuples(len(some), len(args)/len(some)) + end
		if err := t.exec(q, args...); err != nil {
			return err
		}
	}
	return nil
}

// update writes a row over the one that conditions select, or returns missing if there is none.
func (r *rowsOf[R]) update(t *Tx, missing error, row R, conditions string, args ...any) error {
	var set []string
	for _, c := range r.columns {
		if !c.expression && !c.once {
			set = append(set, c.text+" = ?")
		}
	}
	q := "UPDATE " + r.name + " SET " + strings.Join(set, ", ") + " " + conditions
	return t.execOne(missing, q, append(r.values(nil, &row, false), args...)...)
}

// conditions are those of a query, made of constants and placeholders, and the values of the
// placeholders.
type conditions struct {
	texts []string
	args  []any
}

// addIf adds a condition if it is wanted.
func (c *conditions) addIf(wanted bool, text string, args ...any) {
	if wanted {
		c.texts, c.args = append(c.texts, text), append(c.args, args...)
	}
}

func (c *conditions) where() string {
	if len(c.texts) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.texts, " AND ")
}

// readIn returns what a query reads whose last condition is that a column is one of keys.
func readIn[R, K any](t *Tx, query string, keys []K, end string, args ...any) (list []R, err error) {
	for some := range slices.Chunk(keys, maxKeys) {
		q := query + " IN " + tuples(1, len(some)) + end
		rows, err := readAll[R](t, q, append(slices.Clip(args), values(some)...)...)
		if err != nil {
			return nil, err
		}
		list = append(list, rows...)
	}
	return list, nil
}

// maxKeys is how many keys a statement has at most. MariaDB reads all rows that a series has in a
// level if a thousand series are named.
const maxKeys = 500

// tuples returns placeholders for rows, separated by commas, with a number of columns each.
func tuples(rows, columns int) string {
	row := ",(" + strings.Repeat(",?", columns)[1:] + ")"
	return strings.Repeat(row, rows)[1:]
}

// values returns keys as arguments of a query.
func values[K any](keys []K) []any {
	list := make([]any, len(keys))
	for i, k := range keys {
		list[i] = k
	}
	return list
}
