package store

import (
	"errors"
	"strings"
)

// Verdicts is the number of counts of a row of traffic.
const Verdicts = 13

// TrafficCounts are counts in the order of the columns of [Traffic].
type TrafficCounts [Verdicts]int64

// columns implements severalColumns.
func (TrafficCounts) columns() string {
	return "allowed,waited,degraded,shadow_refused,failed_open,refused,banned," +
		"impossible,denied,queue_full,canceled,failed_closed,overruled"
}

// Add adds other to t.
func (t *TrafficCounts) Add(other TrafficCounts) {
	for i, n := range other {
		t[i] += n
	}
}

// Series is a row of a series of traffic.
type Series struct {
	ID     int64  `sql:"traffic_series.id"` // set by the database
	App    string `db:"app"`                // "" stands for all applications together
	Policy string `db:"policy"`             // RequestSeries, OtherPolicies, or the name of a policy
}

var seriesRows = newRows[Series]("traffic_series")

// These stand in the place of a policy.
const (
	RequestSeries = ""  // the requests of the application
	OtherPolicies = "*" // the policies that instances do not tell apart
)

// Traffic is a row of the counts of a series in a span of time.
type Traffic struct {
	Series int64 `db:"series"`
	At     int64 `db:"at"` // the first minute of the span, since the Unix epoch
	Counts TrafficCounts
	Lost   int64 `db:"lost"`
}

// levelTraffic is a row with its level.
type levelTraffic struct {
	Level int `db:"level"`
	Traffic
}

var (
	trafficRows = newRows[Traffic]("traffic")
	levelRows   = newRows[levelTraffic]("traffic")
)

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

// eachCount returns a list of what f returns for each column of counts.
func eachCount(f func(name string) string) string {
	var list []string
	for _, c := range trafficRows.columns[2:] { // behind the series and the time
		list = append(list, f(c.text))
	}
	return strings.Join(list, ", ")
}

// SeriesID returns the id of a series, which it adds if there is none.
func (t *Tx) SeriesID(app, policy string) (int64, error) {
	const find = "SELECT id FROM traffic_series WHERE app = ? AND policy = ?"
	id, err := readOne[int64](t, find, app, policy)
	if !errors.Is(err, ErrNotFound) {
		return id, err
	}
	if err := seriesRows.insert(t, Series{App: app, Policy: policy}); err != nil {
		return 0, err
	}
	return readOne[int64](t, find, app, policy)
}

// SeriesOf returns the series of an application by policy: first that of the requests.
func (t *Tx) SeriesOf(app string) ([]Series, error) {
	return seriesRows.all(t, "WHERE app = ? ORDER BY policy", app)
}

// SeriesOfPolicies returns the series of policies in all applications, by id.
func (t *Tx) SeriesOfPolicies(policies []string) ([]Series, error) {
	return readIn[Series](t, seriesRows.read+"WHERE policy", policies, " ORDER BY id")
}

// SeriesOfAllPolicies returns the series of all policies that exist, by id.
func (t *Tx) SeriesOfAllPolicies() ([]Series, error) {
	return seriesRows.all(t, "JOIN policies p ON p.name = traffic_series.policy ORDER BY traffic_series.id")
}

// SeriesNamed returns the series of a policy in each of the applications.
func (t *Tx) SeriesNamed(apps []string, policy string) ([]Series, error) {
	return readIn[Series](t, seriesRows.read+"WHERE policy = ? AND app", apps, " ORDER BY app", policy)
}

// SeriesCount returns the number of series of applications.
func (t *Tx) SeriesCount(apps []string) (n int64, err error) {
	counts, err := readIn[int64](t, "SELECT COUNT(*) FROM traffic_series WHERE app", apps, "")
	for _, count := range counts {
		n += count
	}
	return n, err
}

// SeriesAfter returns at most limit ids of series that are above an id, in order.
func (t *Tx) SeriesAfter(id int64, limit int) ([]int64, error) {
	return readAll[int64](t, "SELECT id FROM traffic_series WHERE id > ? ORDER BY id LIMIT ?", id, limit)
}

// AddTraffic adds counts to the rows of a level. Rows that do not exist are created.
func (t *Tx) AddTraffic(level int, rows []Traffic) error {
	list := make([]levelTraffic, len(rows))
	for i, r := range rows {
		list[i] = levelTraffic{level, r}
	}

	// Rows are added up by the database itself, in one statement: those that exist are neither read
	// nor written twice.
	return levelRows.write(t, "INSERT INTO ", list, t.db.engine.addUp())
}

// TrafficAt returns the rows of series in one span.
func (t *Tx) TrafficAt(level int, at int64, series []int64) ([]Traffic, error) {
	return readIn[Traffic](t, trafficRows.read+"WHERE level = ? AND at = ? AND series", series, "", level, at)
}

// TrafficOf returns the rows of a series from a minute until another, which is not
// included, in order.
func (t *Tx) TrafficOf(level int, series, from, to int64) ([]Traffic, error) {
	const q = "WHERE level = ? AND series = ? AND at >= ? AND at < ? ORDER BY at"
	return trafficRows.all(t, q, level, series, from, to)
}

// TrafficWithin returns the rows of series from a minute until another, which is not included.
func (t *Tx) TrafficWithin(level int, series []int64, from, to int64) ([]Traffic, error) {
	counts := eachCount(func(c string) string { return c })
	return ofSeries[Traffic](t, "series, at, "+counts, "", level, series, from, to)
}

// TrafficSums adds up the rows of each of the series from a minute until another, which is not
// included. At is 0.
func (t *Tx) TrafficSums(level int, series []int64, from, to int64) ([]Traffic, error) {
	sums := eachCount(func(c string) string { return "COALESCE(SUM(" + c + "), 0)" })
	return ofSeries[Traffic](t, "series, 0, "+sums, " GROUP BY series", level, series, from, to)
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
	const columns = "series, SUM(" + refusedCounts + "), SUM(" + otherCounts + ")"
	return ofSeries[Refusals](t, columns, " GROUP BY series", level, series, from, to)
}

// Refusal is the last row of a series with a refused request.
type Refusal struct{ Series, At int64 }

// LastRefusals returns the last row of each of the series with a refused request, from a minute
// until another, which is not included.
func (t *Tx) LastRefusals(level int, series []int64, from, to int64) ([]Refusal, error) {
	const end = " AND " + refusedCounts + " > 0 GROUP BY series"
	return ofSeries[Refusal](t, "series, MAX(at)", end, level, series, from, to)
}

// ofSeries reads columns of the rows of series in a range. The series are named one by one, and
// not joined, because then every engine looks up the range of each one in the primary key. A
// join makes MySQL and MariaDB read all rows that a series has in the level.
func ofSeries[R any](t *Tx, columns, end string, level int, series []int64, from, to int64) ([]R, error) {
	return readIn[R](t, "SELECT "+columns+" FROM traffic"+t.db.engine.byPrimaryKey()+
		" WHERE level = ? AND at >= ? AND at < ? AND series", series, end, level, from, to)
}

// ForgetTraffic deletes the rows of a level and of some series before a minute.
func (t *Tx) ForgetTraffic(level int, series []int64, before int64) error {
	for _, id := range series {
		const q = "DELETE FROM traffic WHERE level = ? AND series = ? AND at < ?"
		if err := t.exec(q, level, id, before); err != nil {
			return err
		}
	}
	return nil
}

// TrafficVersion returns how often the rows of an application were changed, other than by
// ForgetTraffic.
func (t *Tx) TrafficVersion(app string) (int64, error) {
	return readOne[int64](t, "SELECT COALESCE((SELECT version FROM traffic_versions WHERE app = ?), 0)", app)
}

// TrafficVersions returns the sum of TrafficVersion over all applications.
func (t *Tx) TrafficVersions() (int64, error) {
	return readOne[int64](t, "SELECT COALESCE(SUM(version), 0) FROM traffic_versions")
}

// RaiseTrafficVersion stores that the rows of an application are changed.
func (t *Tx) RaiseTrafficVersion(app string) error {
	n, err := t.affected("UPDATE traffic_versions SET version = version + 1 WHERE app = ?", app)
	if err != nil || n > 0 {
		return err
	}
	return t.exec("INSERT INTO traffic_versions (app, version) VALUES (?, 1)", app)
}

// Collected returns until when the counts of an application were collected, in µs of
// Redis's clock, or 0.
func (t *Tx) Collected(app string) (int64, error) {
	return readOne[int64](t, "SELECT COALESCE((SELECT until FROM traffic_collected WHERE app = ?), 0)", app)
}

// CollectedOfAll returns what Collected returns of each application, without those of which it
// returns 0.
func (t *Tx) CollectedOfAll() (map[string]int64, error) {
	type row struct {
		App   string
		Until int64
	}
	rows, err := readAll[row](t, "SELECT app, until FROM traffic_collected")

	until := make(map[string]int64, len(rows))
	for _, r := range rows {
		until[r.App] = r.Until
	}
	return until, err
}

// SetCollected writes until when the counts of an application were collected.
func (t *Tx) SetCollected(app string, until int64) error {
	return t.exec("REPLACE INTO traffic_collected (app, until) VALUES (?, ?)", app, until)
}
