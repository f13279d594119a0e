package store

import (
	"errors"
	"slices"
	"strings"
)

// Verdicts is the number of counts of a row of traffic.
const Verdicts = 13

// TrafficCounts are counts in the order of the columns: allowed, waited, degraded,
// shadow_refused, failed_open, refused, banned, impossible, denied, queue_full, canceled,
// failed_closed, overruled.
type TrafficCounts [Verdicts]int64

// Add adds other to t.
func (t *TrafficCounts) Add(other TrafficCounts) {
	for i, n := range other {
		t[i] += n
	}
}

// Series is a row of a series of traffic.
type Series struct {
	ID     int64
	App    string // "" stands for all applications together
	Policy string // RequestSeries, OtherPolicies, or the name of a policy
}

// These stand in the place of a policy.
const (
	RequestSeries = ""  // the requests of the application
	OtherPolicies = "*" // the policies that instances do not tell apart
)

// Traffic is a row of the counts of a series in a span of time.
type Traffic struct {
	Series int64
	At     int64 // the first minute of the span, since the Unix epoch
	Counts TrafficCounts
	Lost   int64
}

// Reduce takes away what is counted in other, to no less than 0.
func (t *Traffic) Reduce(other Traffic) {
	for i, n := range other.Counts {
		t.Counts[i] = max(0, t.Counts[i]-n)
	}
	t.Lost = max(0, t.Lost-other.Lost)
}

// Empty reports whether all counts are 0.
func (t *Traffic) Empty() bool { return t.Counts == TrafficCounts{} && t.Lost == 0 }

// The levels: the minutes of the span of a row.
const (
	ByMinute     = 1
	ByTenMinutes = 10
	ByHour       = 60
	ByDay        = 1440
	ByTenDays    = 14400
)

const (
	trafficColumns = "allowed, waited, degraded, shadow_refused, failed_open, refused, banned, " +
		"impossible, denied, queue_full, canceled, failed_closed, overruled, lost"

	trafficSums = "COALESCE(SUM(allowed), 0), COALESCE(SUM(waited), 0), COALESCE(SUM(degraded), 0), " +
		"COALESCE(SUM(shadow_refused), 0), COALESCE(SUM(failed_open), 0), COALESCE(SUM(refused), 0), " +
		"COALESCE(SUM(banned), 0), COALESCE(SUM(impossible), 0), COALESCE(SUM(denied), 0), " +
		"COALESCE(SUM(queue_full), 0), COALESCE(SUM(canceled), 0), COALESCE(SUM(failed_closed), 0), " +
		"COALESCE(SUM(overruled), 0), COALESCE(SUM(lost), 0)"

	trafficRow = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

func scanTraffic(s scanner) (r Traffic, err error) {
	c := &r.Counts
	return r, s.Scan(&r.Series, &r.At, &c[0], &c[1], &c[2], &c[3], &c[4], &c[5], &c[6], &c[7],
		&c[8], &c[9], &c[10], &c[11], &c[12], &r.Lost)
}

func scanSeries(s scanner) (r Series, err error) { return r, s.Scan(&r.ID, &r.App, &r.Policy) }

const seriesColumns = "SELECT id, app, policy FROM traffic_series"

// chunk is how many rows or values a statement of traffic has at most.
const chunk = 100

// manyChunk is chunk for statements that only read. MariaDB reads all rows that a series has in a
// level if a thousand series are named.
const manyChunk = 500

// SeriesID returns the id of a series, which it adds if there is none.
func (t *Tx) SeriesID(app, policy string) (int64, error) {
	const find = "SELECT id FROM traffic_series WHERE app = ? AND policy = ?"
	id, err := readOne(t, scanCount, find, app, policy)
	if !errors.Is(err, ErrNotFound) {
		return id, err
	}
	if _, err := t.exec("INSERT INTO traffic_series (app, policy) VALUES (?, ?)", app, policy); err != nil {
		return 0, err
	}
	return readOne(t, scanCount, find, app, policy)
}

// SeriesOf returns the series of an application by policy: first that of the requests.
func (t *Tx) SeriesOf(app string) ([]Series, error) {
	return readAll(t, scanSeries, seriesColumns+" WHERE app = ? ORDER BY policy", app)
}

// SeriesOfPolicies returns the series of policies in all applications, by id.
func (t *Tx) SeriesOfPolicies(policies []string) (list []Series, err error) {
	for some := range slices.Chunk(policies, chunk) {
		q := seriesColumns + " WHERE policy IN (" + placeholders(len(some)) + ") ORDER BY id"
		series, err := readAll(t, scanSeries, q, values(some)...)
		if err != nil {
			return nil, err
		}
		list = append(list, series...)
	}
	return list, nil
}

// SeriesOfAllPolicies returns the series of all policies that exist, by id.
func (t *Tx) SeriesOfAllPolicies() ([]Series, error) {
	const q = "SELECT s.id, s.app, s.policy FROM traffic_series s JOIN policies p ON p.name = s.policy ORDER BY s.id"
	return readAll(t, scanSeries, q)
}

// SeriesNamed returns the series of a policy in each of the applications.
func (t *Tx) SeriesNamed(apps []string, policy string) (list []Series, err error) {
	for len(apps) > 0 && err == nil {
		n := min(chunk, len(apps))
		var some []Series
		q := seriesColumns + " WHERE policy = ? AND app IN (" + placeholders(n) + ") ORDER BY app"
		some, err = readAll(t, scanSeries, q, append([]any{policy}, values(apps[:n])...)...)
		list, apps = append(list, some...), apps[n:]
	}
	return list, err
}

// SeriesCount returns the number of series of applications.
func (t *Tx) SeriesCount(apps []string) (n int64, err error) {
	for len(apps) > 0 {
		most := min(chunk, len(apps))
		q := "SELECT COUNT(*) FROM traffic_series WHERE app IN (" + placeholders(most) + ")"
		count, err := readOne(t, scanCount, q, values(apps[:most])...)
		if err != nil {
			return 0, err
		}
		n, apps = n+count, apps[most:]
	}
	return n, nil
}

// SeriesAfter returns at most limit ids of series that are above an id, in order.
func (t *Tx) SeriesAfter(id int64, limit int) ([]int64, error) {
	return readAll(t, scanCount, "SELECT id FROM traffic_series WHERE id > ? ORDER BY id LIMIT ?", id, limit)
}

// AddTraffic adds counts to the rows of a level. Rows that do not exist are created.
func (t *Tx) AddTraffic(level int, rows []Traffic) error {
	for len(rows) > 0 {
		// Rows are added up by the database itself, in one statement: those that exist are neither
		// read nor written twice.
		n := min(chunk, len(rows))
		q := "INSERT INTO traffic (level, series, at, " + trafficColumns + ") VALUES " +
			strings.TrimSuffix(strings.Repeat(trafficRow+", ", n), ", ") + t.db.engine.addUp()

		args := make([]any, 0, 17*n)
		for _, r := range rows[:n] {
			args = append(args, level, r.Series, r.At)
			for _, c := range r.Counts {
				args = append(args, c)
			}
			args = append(args, r.Lost)
		}

		if _, err := t.exec(q, args...); err != nil {
			return err
		}

		rows = rows[n:]
	}
	return nil
}

// TrafficAt returns the rows of series in one span.
func (t *Tx) TrafficAt(level int, at int64, series []int64) (list []Traffic, err error) {
	for len(series) > 0 && err == nil {
		n := min(chunk, len(series))
		var some []Traffic
		q := "SELECT series, at, " + trafficColumns + " FROM traffic WHERE level = ? AND at = ? " +
			"AND series IN (" + placeholders(n) + ")"
		some, err = readAll(t, scanTraffic, q, append([]any{level, at}, numbers(series[:n])...)...)
		list, series = append(list, some...), series[n:]
	}
	return list, err
}

// TrafficOf returns the rows of a series from a minute until another, which is not
// included, in order.
func (t *Tx) TrafficOf(level int, series, from, to int64) ([]Traffic, error) {
	return readAll(t, scanTraffic, "SELECT series, at, "+trafficColumns+
		" FROM traffic WHERE level = ? AND series = ? AND at >= ? AND at < ? ORDER BY at", level, series, from, to)
}

// TrafficWithin returns the rows of series from a minute until another, which is not included.
func (t *Tx) TrafficWithin(level int, series []int64, from, to int64) ([]Traffic, error) {
	return ofSeries(t, scanTraffic, "series, at, "+trafficColumns, "", level, series, from, to)
}

// TrafficSums adds up the rows of each of the series from a minute until another, which is not
// included. At is 0.
func (t *Tx) TrafficSums(level int, series []int64, from, to int64) ([]Traffic, error) {
	return ofSeries(t, scanTraffic, "series, 0, "+trafficSums, " GROUP BY series", level, series, from, to)
}

// Refusals is how many requests a series refused in a range, and how many others it decided.
type Refusals struct{ Series, Refused, Others int64 }

const (
	refusedCounts = "refused + banned + impossible + denied + queue_full"
	otherCounts   = "allowed + waited + degraded + shadow_refused + failed_open + canceled + failed_closed + overruled"
)

// SumRefusals adds up what each of the series refused from a minute until another, which is not
// included. It costs less than TrafficSums.
func (t *Tx) SumRefusals(level int, series []int64, from, to int64) ([]Refusals, error) {
	scan := func(s scanner) (r Refusals, err error) { return r, s.Scan(&r.Series, &r.Refused, &r.Others) }
	const columns = "series, SUM(" + refusedCounts + "), SUM(" + otherCounts + ")"
	return ofSeries(t, scan, columns, " GROUP BY series", level, series, from, to)
}

// Refusal is the last row of a series with a refused request.
type Refusal struct{ Series, At int64 }

// LastRefusals returns the last row of each of the series with a refused request, from a minute
// until another, which is not included.
func (t *Tx) LastRefusals(level int, series []int64, from, to int64) ([]Refusal, error) {
	scan := func(s scanner) (r Refusal, err error) { return r, s.Scan(&r.Series, &r.At) }
	return ofSeries(t, scan, "series, MAX(at)", " AND "+refusedCounts+" > 0 GROUP BY series", level, series, from, to)
}

// ofSeries reads columns of the rows of series in a range. The series are named one by one, and
// not joined, because then every engine looks up the range of each one in the primary key. A
// join makes MySQL and MariaDB read all rows that a series has in the level.
func ofSeries[T any](
	t *Tx, scan func(scanner) (T, error), columns, end string, level int, series []int64, from, to int64,
) (list []T, err error) {
	for some := range slices.Chunk(series, manyChunk) {
		rows, err := readAll(t, scan, "SELECT "+columns+" FROM traffic"+t.db.engine.byPrimaryKey()+
			" WHERE level = ? AND series IN ("+placeholders(len(some))+") AND at >= ? AND at < ?"+end,
			append(append([]any{level}, numbers(some)...), from, to)...)
		if err != nil {
			return nil, err
		}
		list = append(list, rows...)
	}
	return list, nil
}

// ForgetTraffic deletes the rows of a level and of some series before a minute.
func (t *Tx) ForgetTraffic(level int, series []int64, before int64) error {
	for _, id := range series {
		const q = "DELETE FROM traffic WHERE level = ? AND series = ? AND at < ?"
		if _, err := t.exec(q, level, id, before); err != nil {
			return err
		}
	}
	return nil
}

// TrafficVersion returns how often the rows of an application were changed, other than by
// ForgetTraffic.
func (t *Tx) TrafficVersion(app string) (int64, error) {
	version, err := readOne(t, scanCount, "SELECT version FROM traffic_versions WHERE app = ?", app)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return version, err
}

// TrafficVersions returns the sum of TrafficVersion over all applications.
func (t *Tx) TrafficVersions() (int64, error) {
	return readOne(t, scanCount, "SELECT COALESCE(SUM(version), 0) FROM traffic_versions")
}

// RaiseTrafficVersion stores that the rows of an application are changed.
func (t *Tx) RaiseTrafficVersion(app string) error {
	n, err := t.exec("UPDATE traffic_versions SET version = version + 1 WHERE app = ?", app)
	if err != nil || n > 0 {
		return err
	}
	_, err = t.exec("INSERT INTO traffic_versions (app, version) VALUES (?, 1)", app)
	return err
}

// Collected returns until when the counts of an application were collected, in µs of
// Redis's clock, or 0.
func (t *Tx) Collected(app string) (int64, error) {
	until, err := readOne(t, scanCount, "SELECT until FROM traffic_collected WHERE app = ?", app)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return until, err
}

// CollectedOfAll returns what Collected returns of each application, without those of which it
// returns 0.
func (t *Tx) CollectedOfAll() (map[string]int64, error) {
	type row struct {
		app   string
		until int64
	}
	scan := func(s scanner) (r row, err error) { return r, s.Scan(&r.app, &r.until) }
	rows, err := readAll(t, scan, "SELECT app, until FROM traffic_collected")

	until := make(map[string]int64, len(rows))
	for _, r := range rows {
		until[r.app] = r.until
	}
	return until, err
}

// SetCollected writes until when the counts of an application were collected.
func (t *Tx) SetCollected(app string, until int64) error {
	n, err := t.exec("UPDATE traffic_collected SET until = ? WHERE app = ?", until, app)
	if err != nil || n > 0 {
		return err
	}
	_, err = t.exec("INSERT INTO traffic_collected (app, until) VALUES (?, ?)", app, until)
	return err
}

// numbers returns ids as arguments of a query.
func numbers(ids []int64) []any {
	list := make([]any, len(ids))
	for i, id := range ids {
		list[i] = id
	}
	return list
}
