package store

// The states of a scheduled change. Only a waiting one changes.
const (
	StateWaiting  = "waiting"
	StateDone     = "done"
	StateFailed   = "failed"
	StateCanceled = "canceled"
)

// Scheduled is the row of a change of a policy that is made at a time.
type Scheduled struct {
	ID        string
	Policy    string
	Base      int64  // the version of the policy that it was made from
	Before    string // the body of that version
	After     string // the body that it is to become
	Due       int64  // µs
	User      string
	Via       string // how the user was authenticated
	CreatedAt int64  // µs
	Comment   string
	State     string
	EndedAt   int64 // µs; 0 while it waits
	Reason    string
}

const scheduledFields = "s.id, s.policy, s.base, s.body_before, s.body_after, s.due_at, s.user_name, s.via, " +
	"s.created_at, s.comment, s.state, s.ended_at, s.reason"

const scheduledColumns = "SELECT " + scheduledFields + " FROM scheduled s"

func (s *Scheduled) scanned() []any {
	return []any{&s.ID, &s.Policy, &s.Base, &s.Before, &s.After, &s.Due, &s.User, &s.Via,
		&s.CreatedAt, &s.Comment, &s.State, &s.EndedAt, &s.Reason}
}

func scanScheduled(s scanner) (c Scheduled, err error) { return c, s.Scan(c.scanned()...) }

// AddScheduled adds a change that waits.
func (t *Tx) AddScheduled(c Scheduled) error {
	const q = "INSERT INTO scheduled (id, policy, base, body_before, body_after, due_at, user_name, via, " +
		"created_at, comment, state, ended_at, reason) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, '')"
	_, err := t.exec(q, c.ID, c.Policy, c.Base, c.Before, c.After, c.Due, c.User, c.Via,
		c.CreatedAt, c.Comment, StateWaiting)
	return err
}

// Scheduled returns one change, or ErrNotFound.
func (t *Tx) Scheduled(id string) (Scheduled, error) {
	return readOne(t, scanScheduled, scheduledColumns+" WHERE s.id = ?", id)
}

// NextScheduled returns the waiting change that is due first, or ErrNotFound.
func (t *Tx) NextScheduled() (Scheduled, error) {
	return readOne(t, scanScheduled,
		scheduledColumns+" WHERE s.state = ? ORDER BY s.due_at, s.id LIMIT 1", StateWaiting)
}

// EndScheduled stores at an instant in µs what became of a waiting change, or returns ErrStale
// if it waits no more.
func (t *Tx) EndScheduled(id, state, reason string, at int64) error {
	const q = "UPDATE scheduled SET state = ?, reason = ?, ended_at = ? WHERE id = ? AND state = ?"
	return t.execOne(ErrStale, q, state, reason, at, id, StateWaiting)
}

// Coming is a waiting change with the body of its policy as it is, or "" if it was deleted.
type Coming struct {
	Scheduled
	Body string
}

// Coming returns at most limit changes that wait, those that are due first first.
func (t *Tx) Coming(limit int) ([]Coming, error) {
	scan := func(s scanner) (c Coming, err error) { return c, s.Scan(append(c.scanned(), &c.Body)...) }
	const q = "SELECT " + scheduledFields + ", COALESCE(p.body, '') " +
		"FROM scheduled s LEFT JOIN policies p ON p.name = s.policy " +
		"WHERE s.state = ? ORDER BY s.due_at, s.id LIMIT ?"
	return readAll(t, scan, q, StateWaiting, limit)
}

// ScheduledOf returns at most limit changes of a policy in a state that ended at an instant in
// µs or later, those that are due first first. The instant is 0 for changes that wait.
func (t *Tx) ScheduledOf(policy, state string, since int64, limit int) ([]Scheduled, error) {
	const q = scheduledColumns +
		" WHERE s.policy = ? AND s.state = ? AND s.ended_at >= ? ORDER BY s.due_at, s.id LIMIT ?"
	return readAll(t, scanScheduled, q, policy, state, since, limit)
}

// ScheduledCount is how many changes wait.
type ScheduledCount struct{ OfPolicy, OfUser, All int64 }

// CountScheduled returns how many changes wait, of a policy, of a user and of all.
func (t *Tx) CountScheduled(policy, user string) (n ScheduledCount, err error) {
	// There are three statements, because each bound is counted in another index.
	for _, c := range []struct {
		n     *int64
		where string
		args  []any
	}{
		{&n.OfPolicy, "policy = ? AND state = ?", []any{policy, StateWaiting}},
		{&n.OfUser, "user_name = ? AND state = ?", []any{user, StateWaiting}},
		{&n.All, "state = ?", []any{StateWaiting}},
	} {
		if *c.n, err = readOne(t, scanCount, "SELECT COUNT(*) FROM scheduled WHERE "+c.where, c.args...); err != nil {
			return n, err
		}
	}

	return n, nil
}

// ForgetScheduled deletes the changes that ended before an instant in µs.
func (t *Tx) ForgetScheduled(before int64) error {
	_, err := t.exec("DELETE FROM scheduled WHERE state <> ? AND ended_at < ?", StateWaiting, before)
	return err
}
