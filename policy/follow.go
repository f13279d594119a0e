package policy

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

const (
	// reportEvery is the longest time between two reports to the source.
	reportEvery = 5 * time.Second

	// spread bounds the random delay between a notification and the load that it
	// causes, so that the instances of a fleet do not all load at once.
	spread = 100 * time.Millisecond
)

// Follower keeps the rules of a limiter equal to the policies of a source. It is
// safe for concurrent use.
//
// It polls the source after each pause, and soon after a notification:
//
//	unchanged             nothing happens
//	a valid revision      it is in force from now on         enforce
//	another revision      it is refused, the last one stays  refuse
//	                      of a Reporter, single policies     setUsable
//	an error              the last one stays                 sourceFailed
//
// A revision is seen when the source has returned it, whatever became of it, and is not read again.
// One goroutine polls, so the limiter gets one revision after the other.
type Follower struct {
	limiter  *limiter.Limiter
	app      string
	bindings Bindings
	source   Source
	options  Options
	logger   *slog.Logger // nil means slog.Default() at the time
	id       string
	process  string // random, see Instance

	// Used only by the goroutine that polls, which is that of Follow until it returns.
	seen     string            // the version that the source returned last
	reportAt time.Time         // when the next report is due
	partial  bool              // single policies may be left out, as the source is told of it
	before   map[string]Policy // that are in force, by name; see choice.before
	beside   *beside           // the overrides beside them

	mu    sync.Mutex
	state state // guarded by mu

	wakeup  chan struct{}
	rebinds chan rebinding
	ended   <-chan struct{} // closed when the follower ends
	end     context.CancelFunc
	done    sync.WaitGroup
}

// rebinding is a call of Rebind, which the goroutine that polls answers.
type rebinding struct {
	bindings Bindings
	err      chan error
}

// Follow puts the policies of the source that name the application in force on
// the limiter, and does so again whenever they change, until Close or until ctx
// ends. It returns once the first policies are in force. If there are none,
// Options.OnMissing decides. If ctx ends before, Follow returns the cause. The
// limiter's counts survive every change, as [limiter.Limiter.SetRules] documents.
// Nothing but the follower may set the limiter's rules from then on.
//
// A revision that cannot be put in force is refused as a whole, and the one
// before stays in force. It also stays while the source is away or empty.
//
// A source that is a [Reporter] is told of single policies: those that the program cannot carry
// out are left out, each alone, and all others are in force. If an earlier version of such a
// policy is in force, it stays so until the policy is changed to one that can be carried out, is
// switched off, or is no longer for the application. A start takes earlier versions from
// Options.LastGood. Without that file, as at the first start of an instance, such a policy is not
// applied at all: its limit does not hold. [Status.LeftOut] and the log have them.
//
// The overrides of an [OverrideSource] are in force beside its policies. Those that cannot be read
// or that their policy cannot have are left out, each alone, as [Status.Overrides] says.
// Options.LastGood does not hold them: an instance that starts while the source is away has none
// of them until the source is back.
func Follow(
	ctx context.Context, l *limiter.Limiter, app string, bindings Bindings, source Source, o Options,
) (*Follower, error) {
	errs := []error{checkApp(app), bindings.Validate(), o.Validate()}
	if l == nil {
		errs = append(errs, errors.New("policy: the limiter is nil"))
	}
	if source == nil {
		errs = append(errs, errors.New("policy: the source is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	f := &Follower{
		limiter: l, app: app, bindings: bindings, source: source, options: o, logger: o.Logger,
		id: cmp.Or(o.Instance, NewInstance()), process: cmp.Or(o.Process, strings.ToLower(crand.Text()[:16])),
		wakeup: make(chan struct{}, 1), rebinds: make(chan rebinding),
	}
	_, f.partial = source.(Reporter)
	f.beside = newBeside(f, source)
	f.bindings.beside = f.beside.table
	if err := f.start(ctx); err != nil {
		return nil, err
	}

	// The caller may end the start by ctx, and later the following by ctx or Close.
	ctx, f.end = context.WithCancel(ctx)
	f.ended = ctx.Done()
	f.done.Go(func() { f.run(ctx) })
	if n, ok := source.(Notifier); ok {
		f.done.Go(func() { n.Notify(ctx, f.wake) })
	}
	return f, nil
}

// Close stops following and leaves the current rules in force. It may be called
// again and never returns an error.
func (f *Follower) Close() error {
	f.end()
	f.done.Wait()
	return nil
}

// Rebind puts the policies in force again with other bindings, by which all later revisions are
// carried out too, and returns when that is done. If the policies cannot be carried out with them,
// the error says why and the former bindings stay; those of a [Reporter] are left out, as of
// [Follow]. A revision that was refused is tried again at the next poll. A poll that is under way
// comes first.
func (f *Follower) Rebind(bindings Bindings) error {
	if err := bindings.Validate(); err != nil {
		return err
	}
	r := rebinding{bindings, make(chan error, 1)}
	select {
	case f.rebinds <- r:
		return <-r.err
	case <-f.ended:
		return errors.New("policy: the follower was closed")
	}
}

// carryOut does what Rebind says.
func (r *rebinding) carryOut(f *Follower) error {
	former, before := f.bindings, f.Status()
	f.bindings = r.bindings
	f.bindings.beside = f.beside.table
	if before.Version != "" {
		left, err := f.beside.renew()
		if err != nil {
			f.bindings = former
			return err
		}
		f.tellLeftOut(before.Version, before.Policies, left, before.LeftOut)
	}

	// The report says what the program lets policies use.
	f.reportAt = time.Time{}
	if before.Refused != "" {
		f.seen = ""
	}
	return nil
}

// Status returns the version in force and the errors of the last attempts.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.status(time.Now())
}

// Instance returns the name that this process reports to the source.
func (f *Follower) Instance() string { return f.id }

// start puts the first policies in force.
func (f *Follower) start(ctx context.Context) error {
	f.check(ctx)
	if f.Status().Version != "" {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("policy: no policies are in force: %w", context.Cause(ctx))
	}

	// The source has no policies, cannot be asked, or has only policies that are refused. LastGood
	// may help in all three cases.
	status := f.Status()
	err := errors.Join(status.SourceErr, status.RefusedErr)
	if f.options.LastGood != "" {
		lastErr := f.restore()
		if lastErr == nil {
			return nil
		}
		err = errors.Join(err, lastErr)
	}

	if f.options.OnMissing == OnMissingWait {
		return nil
	}
	return err
}

// restore puts the policies of Options.LastGood in force.
func (f *Follower) restore() error {
	s, err := readLastGood(f.options.LastGood, f.app)
	if err == nil {
		err = f.enforce(s)
	}
	if err != nil {
		return fmt.Errorf("policy: Options.LastGood: %w", err)
	}

	f.log(slog.LevelWarn, "headgate: the last good policies are in force, as their source cannot be used",
		slog.String("version", s.Version))
	return nil
}

// run polls the source until ctx ends.
func (f *Follower) run(ctx context.Context) {
	due := time.Now().Add(pauseOf(f.options.poll()))
	for {
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case r := <-f.rebinds:
			timer.Stop()
			r.err <- r.carryOut(f)
		case <-f.wakeup:
			timer.Stop()

			// The poll comes sooner, and not at once: each instance of the fleet is woken by the
			// same notification.
			if soon := time.Now().Add(rand.N(spread)); soon.Before(due) {
				due = soon
			}
		case <-timer.C:
			f.check(ctx)
			due = time.Now().Add(pauseOf(f.options.poll()))
		}
	}
}

// pauseOf returns the time until the next poll, so that instances do not poll at once.
func pauseOf(poll time.Duration) time.Duration { return poll - rand.N(poll/5) }

// wake makes the follower poll soon.
func (f *Follower) wake() {
	select {
	case f.wakeup <- struct{}{}:
	default:
	}
}

// check polls the source once and acts on its answer.
func (f *Follower) check(ctx context.Context) {
	s, err := f.load(ctx)

	// The end of ctx ends the call too, which says nothing about the source.
	if ctx.Err() != nil {
		return
	}

	var bad *RevisionError
	switch {
	case errors.Is(err, ErrUnchanged):
		f.sourceAnswered()
		f.beside.follow(ctx, nil)
	case errors.As(err, &bad):
		// Its version counts as seen, so that it is not read and refused again at every poll.
		f.seen = bad.Version
		f.sourceAnswered()
		f.refuse(bad)
		f.beside.follow(ctx, nil)
	case err != nil:
		f.sourceFailed(err)
		return
	default:
		f.seen = s.Version
		f.sourceAnswered()

		// A new policy has its overrides from its first request on.
		f.beside.follow(ctx, s.Policies.For(f.app))
		f.apply(s)
	}

	f.beside.bind()
	f.report(ctx)
}

func (f *Follower) load(ctx context.Context) (s Snapshot, err error) {
	defer guard("Load of the source", &err)
	ctx, cancel := context.WithTimeout(ctx, f.options.timeout())
	defer cancel()
	return f.source.Load(ctx, f.seen)
}

// apply puts a snapshot in force, or refuses it.
func (f *Follower) apply(s Snapshot) {
	if err := f.enforce(s); err != nil {
		f.refuse(&RevisionError{s.Version, err})
		return
	}

	f.log(slog.LevelInfo, "headgate: policies are in force", slog.String("version", s.Version),
		slog.Int("policies", f.Status().Policies))

	if f.options.LastGood == "" {
		return
	}

	// Policies that cannot be kept stay in force: only a later start may miss them. What is kept
	// is what is in force, also instead of a policy that was left out.
	inForce := Snapshot{s.Version, slices.Collect(maps.Values(f.before))}
	err := writeLastGood(f.options.LastGood, f.app, inForce)
	if err != nil {
		f.log(slog.LevelWarn, "headgate: the policies in force cannot be kept on disk",
			slog.String("error", reason(err)))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.LastGoodErr = err
}

// guard, deferred, turns a panic of a function of the program into an error. The goroutine of a
// follower has nobody else to recover from it.
func guard(function string, err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("policy: %s: %w", function, &limiter.PanicError{Value: v, Stack: debug.Stack()})
	}
}

func (f *Follower) enforce(s Snapshot) (err error) {
	defer guard("a function that adapts or binds policies", &err)
	compiled, left, err := putRules(f, s)
	if err != nil {
		return err
	}

	// The report of the new version is due at once.
	f.mu.Lock()
	before, leftBefore, n := f.state.Policies, f.state.LeftOut, len(compiled.rules)
	f.state.Version, f.state.Policies, f.state.Since, f.state.LeftOut = s.Version, n, time.Now(), left
	f.state.Refused, f.state.RefusedErr = "", nil
	f.reportAt = time.Time{}
	f.mu.Unlock()

	f.callHook(events.Policy{Change: events.PolicyApplied, Version: s.Version, Policies: n})
	f.tellLeftOut(s.Version, n, left, leftBefore)
	f.warn(s, before)
	return nil
}

// putRules sets the rules of a snapshot.
func putRules(f *Follower, s Snapshot) (*Compiled, []LeftOut, error) {
	set, err := f.adapt(s.Policies)
	if err != nil {
		return nil, nil, err
	}

	set = set.For(f.app)
	put := f.setAll
	if f.partial {
		put = f.setUsable
	}
	compiled, left, err := put(set)
	if err != nil {
		return nil, nil, err
	}

	f.before = byName(compiled.policies)
	f.beside.snapshot, f.beside.bound = s, map[string]bool{}
	for name := range f.beside.tables {
		f.beside.bound[name] = true
	}
	return compiled, left, nil
}

// adapt returns the policies that Options.Adapt has left. A policy that is not valid is
// an error also if Adapt would leave it out, so all followers of a source refuse the same
// versions.
func (f *Follower) adapt(s Set) (set Set, err error) {
	defer guard("Options.Adapt", &err)
	if f.options.Adapt == nil {
		return s, nil
	}
	mine := s.For(f.app)
	if err := mine.Validate(); err != nil {
		return nil, err
	}
	return f.options.Adapt(mine), nil
}

// callHook passes an event to the hook of the limiter, if it has one.
func (f *Follower) callHook(e events.Policy) {
	if hook := f.limiter.Hooks().Policy; hook != nil {
		e.App = f.app
		hook(e)
	}
}

func (f *Follower) refuse(bad *RevisionError) {
	f.log(slog.LevelError, "headgate: policies are refused, and the previous ones stay in force",
		slog.String("version", bad.Version), slog.String("error", reason(bad.Err)))
	f.mu.Lock()
	f.state.Refused, f.state.RefusedErr = bad.Version, bad
	f.reportAt = time.Time{}
	f.mu.Unlock()
	f.callHook(events.Policy{Change: events.PolicyRefused, Version: bad.Version, Err: bad.Err})
}

// sourceAnswered records that the source has answered.
func (f *Follower) sourceAnswered() {
	f.mu.Lock()
	was := f.state.SourceErr
	f.state.SourceErr, f.state.answered = nil, time.Now()
	f.mu.Unlock()

	// The way back is logged once, however often the source answers.
	if was != nil {
		f.log(slog.LevelInfo, "headgate: the source of policies is back")
		f.callHook(events.Policy{Change: events.PolicySourceBack})
	}
}

// sourceFailed records that the source has not answered.
func (f *Follower) sourceFailed(err error) {
	f.mu.Lock()
	was := f.state.SourceErr
	f.state.SourceErr = err
	f.mu.Unlock()

	// Of an outage only the first error is logged.
	if was == nil {
		f.log(slog.LevelWarn, "headgate: the source of policies cannot be used, and the policies in force stay",
			slog.String("error", reason(err)))
		f.callHook(events.Policy{Change: events.PolicySourceAway, Err: err})
	}
}

// report reports the version in force to the source, if a report is due.
func (f *Follower) report(ctx context.Context) {
	r, ok := f.source.(Reporter)
	if !ok || time.Now().Before(f.reportAt) {
		return
	}

	s := f.Status()
	ctx, cancel := context.WithTimeout(ctx, f.options.timeout())
	defer cancel()
	err := r.Report(ctx, Instance{ID: f.id, Process: f.process, App: f.app, Version: s.Version, Refused: s.Refused,
		Error: reason(s.RefusedErr), Store: storeMode(f.limiter), Can: reported(&f.bindings),
		LeftOut: s.LeftOut[:min(len(s.LeftOut), maxLeftOut)], MoreLeftOut: max(0, len(s.LeftOut)-maxLeftOut),
		Overrides: s.Overrides.Version, OverridesLeftOut: s.Overrides.LeftOut})

	// A report that has failed is not repeated sooner: polls are frequent, and each would wait for
	// one more call that fails.
	f.reportAt = time.Now().Add(reportEvery - rand.N(reportEvery/5))

	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.ReportErr = err
}

// storeMode returns what decides for the limiter, as Instance.Store has it.
func storeMode(l *limiter.Limiter) string {
	mode := ""
	for _, s := range l.Stores() {
		if len(s.Away) > 0 {
			return s.Mode.String()
		}
		mode = events.StoreDecides.String()
	}
	return mode
}

func (f *Follower) log(level slog.Level, text string, attrs ...slog.Attr) {
	logger := f.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(context.Background(), level, text, append(attrs, slog.String("app", f.app))...)
}

// Status is the state of a [Follower].
type Status struct {
	// Version is in force since Since, with Policies policies of the application;
	// "" if no version is in force.
	Version  string
	Policies int
	Since    time.Time

	// Refused is the version of the source that cannot be put in force, and
	// RefusedErr is the reason; "" and nil if there is none.
	Refused    string
	RefusedErr error

	// LeftOut are the policies of Version that are not in force as they were published, and no
	// others; see [Follow].
	LeftOut []LeftOut

	// Overrides is the state of the overrides beside the policies. The zero value stands for a
	// source that has none.
	Overrides OverridesStatus

	// SourceErr is the error of the last poll of the source, or nil.
	SourceErr error

	// Age is the time since the source last confirmed the version that is in
	// force or refused; below 0 if it never did.
	Age time.Duration

	// ReportErr and LastGoodErr are the errors of the last report to the source
	// and of the last write of Options.LastGood, or nil.
	ReportErr   error
	LastGoodErr error
}

// state is a status with the instant of the last answer instead of its age.
type state struct {
	Status
	answered time.Time
}

func (s *state) status(now time.Time) Status {
	out := s.Status
	out.LeftOut = slices.Clone(out.LeftOut)
	out.Age = -1
	if !s.answered.IsZero() {
		out.Age = now.Sub(s.answered)
	}
	return out
}

// reason returns the text of an error in one line of at most MaxText bytes.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return clipped(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// clipped returns at most MaxText bytes of a text.
func clipped(s string) string { return clippedTo(s, MaxText) }

// clippedTo returns at most most bytes of a text.
func clippedTo(s string, most int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > most {
		return strings.ToValidUTF8(s[:most-3], "") + "…"
	}
	return s
}

// maxInstance is the maximum length in bytes of an instance's name.
const maxInstance = 128

// NewInstance returns a name for this process, such as Options.Instance takes: the
// host's name and eight random letters and digits.
func NewInstance() string {
	host, err := os.Hostname()
	if err != nil || host == "" || !isPrintable(host) {
		host = "host"
	}
	return host[:min(len(host), 100)] + "-" + strings.ToLower(crand.Text()[:8])
}

// isPrintable reports whether s is printable ASCII without a space.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
