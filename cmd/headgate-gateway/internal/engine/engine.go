// Package engine decides for the faces of the gateway: one store, which all of them
// share, and the limiters that follow the policies of an application.
//
// [Open] returns an [Engine]. A [Face] asks it for the [limiter.Limiter] of an application, once,
// and then asks that limiter for each request.
package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

// Face is a way to ask the gateway, such as "proxy". Limits are the same whichever face
// asks: the counts of a policy are under its name and the key of the caller.
type Face struct {
	// Name identifies the face in the log: a letter a to z, then a to z, 0 to 9 and "-".
	Name string

	// CannotKeep, unless nil, returns why the face cannot carry out a policy, such as
	// "it cannot release leases", or "" if it can. Such a policy is left out of the
	// rules of the face, and a warning names policy, face and reason once a revision.
	CannotKeep func(policy.Policy) string

	// SeesNoAnswers says that the face does not learn how a request is answered, so no answer
	// gives units back. A warning names each policy that has such answers once a revision.
	SeesNoAnswers bool

	// NamesCosts says that a request costs what the face is told, so the cost of a policy means
	// nothing. A warning names each policy that has one once a revision.
	NamesCosts bool

	// Carries, unless nil, is called with the policies that the face carries out, once a revision,
	// before they are in force.
	Carries func(policy.Set)

	// AnswersClients says that the face answers the clients themselves, so that the refusals of the
	// configuration apply there.
	AnswersClients bool

	// Bind, unless nil, returns the bindings of the face, which are made of those of the
	// Options.
	Bind func(policy.Bindings) policy.Bindings

	// Configure, unless nil, changes the configuration of a limiter of the face before it
	// is made. Store, Rules and Observer belong to the engine.
	Configure func(*limiter.Config)
}

// Engine has the store and the limiters. It is safe for concurrent use.
type Engine struct {
	options Options
	logger  *slog.Logger
	source  policy.Source
	store   core.Store
	shared  *shared // nil without Redis
	ctx     context.Context
	end     context.CancelFunc

	// processes hold a name for each application of this process, under which all faces
	// together report to Redis.
	processes map[string]string
	reports   map[string]*reports // by application

	mu       sync.Mutex
	limiters map[limiterKey]*followed // Guarded by mu.
	stopped  bool                     // Guarded by mu.
}

// limiterKey identifies a limiter.
type limiterKey struct{ app, face string }

// followed is a limiter and what keeps its rules equal to the policies.
type followed struct {
	face     Face
	limiter  *limiter.Limiter
	follower *policy.Follower
}

// errStopped is the error of a limiter that is asked for too late.
var errStopped = errors.New("engine: it was closed")

// Open opens the store and the source of policies. With a Redis, which need not answer
// yet, it starts to count the instances that share the limits. Without one the counts are
// those of this process. The error names every mistake in the options. The caller must
// call Close. All limiters follow their policies until then, or until ctx ends.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if err := o.faults(); err != nil {
		return nil, err
	}

	e := &Engine{options: o.withDefaults(), limiters: map[limiterKey]*followed{}}
	e.processes, e.reports = map[string]string{}, map[string]*reports{}
	for _, app := range e.options.Apps {
		e.processes[app], e.reports[app] = rand.Text(), &reports{}
	}

	e.logger = newLogger(e.options.Logger)
	e.ctx, e.end = context.WithCancel(ctx)
	// A failure may come after a client of Redis was made, which Close closes.
	if err := e.open(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Engine) open() (err error) {
	if err := e.openStore(); err != nil {
		return err
	}
	e.source, err = e.openSource()
	return err
}

// Apps returns the applications, the default one first.
func (e *Engine) Apps() []string { return e.options.Apps }

// Store returns the store that all limiters share, for a face that makes steps of its
// own. With a Redis it decides in memory while Redis is away.
func (e *Engine) Store() core.Store { return e.store }

// Logger returns the logger of the engine, for its faces.
func (e *Engine) Logger() *slog.Logger { return e.logger }

// Limiter returns the limiter of the application and face, which follows the policies of
// the application. There is one for each application and face, of which the first call
// decides CannotKeep, Carries, Bind and Configure. "" means the default application. The limiter
// belongs to the engine, which closes it.
//
// The first call returns once policies are in force. It fails if they come from a file
// that cannot be put in force. If they are published in Redis, it succeeds without them,
// as Redis may be away, and until they come the limiter lets every request pass; Ready
// says so.
func (e *Engine) Limiter(app string, f Face) (*limiter.Limiter, error) {
	if app == "" {
		app = e.options.Apps[0]
	}
	if !e.serves(app) {
		return nil, fmt.Errorf("engine: the application %q is not one of the gateway's", textform.Clip(app))
	}
	if err := checkFace(f.Name); err != nil {
		return nil, err
	}

	// The lock is held until the policies are loaded: faces that ask at the same time share one
	// limiter.
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil, errStopped
	}
	key := limiterKey{app, f.Name}
	if l := e.limiters[key]; l != nil {
		return l.limiter, nil
	}

	l, err := e.follow(app, f)
	if err != nil {
		return nil, fmt.Errorf("engine: the policies of %q for the face %s: %w", textform.Clip(app), f.Name, err)
	}
	e.limiters[key] = l
	return l.limiter, nil
}

// serves reports whether the application is one of the gateway's.
func (e *Engine) serves(app string) bool {
	for _, a := range e.options.Apps {
		if a == app {
			return true
		}
	}
	return false
}

// follow makes a limiter and puts its first policies in force.
func (e *Engine) follow(app string, f Face) (*followed, error) {
	c := limiter.Config{Logger: e.logger, Top: e.options.Top}
	if f.Configure != nil {
		f.Configure(&c)
	}

	// What the face has configured is kept, but for what belongs to the engine.
	c.Store, c.Rules, c.Observer = e.store, nil, nil
	e.shared.record(app, &c)
	if e.options.Metrics != nil {
		e.options.Metrics(&c)
	}

	l, err := limiter.New(c)
	if err != nil {
		return nil, err
	}

	follower, err := policy.Follow(e.ctx, l, app, f.bind(e.options.Bindings), e.sourceOf(app, f.Name),
		e.followOptions(app, f))
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &followed{f, l, follower}, nil
}

// bind returns the bindings of the face.
func (f *Face) bind(b policy.Bindings) policy.Bindings {
	if f.Bind == nil {
		return b
	}
	return f.Bind(b)
}

// Rebind makes all limiters count by other bindings, from the return on. If the policies in force
// cannot be carried out with them, all limiters keep the former and the error says why. It must
// not be called by two at once.
func (e *Engine) Rebind(b policy.Bindings) error {
	former := e.options.Bindings
	var errs []error
	all := e.all() // without the lock: a poll that is under way comes first
	for _, l := range all {
		if err := l.follower.Rebind(l.face.bind(b)); err != nil {
			errs = append(errs, fmt.Errorf("the policies for the face %s: %w", l.face.Name, err))
		}
	}
	if errs == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.options.Bindings = b
		return nil
	}

	// With the former ones they have been in force.
	for _, l := range all {
		errs = append(errs, l.follower.Rebind(l.face.bind(former)))
	}
	return errors.Join(errs...)
}

func (e *Engine) followOptions(app string, f Face) policy.Options {
	o := policy.Options{
		Poll: e.options.Poll, Timeout: e.options.LoadTimeout, Instance: e.options.Instance, Process: e.processes[app],
		Logger: e.logger.With("face", f.Name), Adapt: adapt(app, f, e.logger),
	}
	// The last good policies are what a face could carry out, so each face keeps its own.
	if e.options.LastGood != "" && !e.options.Check {
		o.LastGood = filepath.Join(e.options.LastGood, fileName(app)+"."+f.Name+".json")
	}
	// Redis may be away at the start. A check fails then, as it could not say that the policies are
	// valid.
	if e.isPublished() && !e.options.Check {
		o.OnMissing = policy.OnMissingWait
	}
	return o
}

// adapt returns a function that leaves out the policies that the face cannot carry out,
// and warns about each, and about those that it carries out in part.
func adapt(app string, f Face, logger *slog.Logger) func(policy.Set) policy.Set {
	if f.CannotKeep == nil && !f.SeesNoAnswers && !f.NamesCosts && f.Carries == nil {
		return nil
	}
	return func(set policy.Set) policy.Set {
		kept := make(policy.Set, 0, len(set))
		for _, p := range set {
			why := ""
			if f.CannotKeep != nil {
				why = f.CannotKeep(p)
			}

			if why != "" {
				logger.Warn("a face leaves out a policy that it cannot carry out",
					"face", f.Name, "app", app, "policy", p.Name, "reason", why)
				continue
			}
			kept = append(kept, p)

			warnOfParts(app, f, &p, logger)
		}
		if f.Carries != nil {
			f.Carries(kept)
		}
		return kept
	}
}

// warnOfParts warns about the parts of a policy that the face does not carry out.
func warnOfParts(app string, f Face, p *policy.Policy, logger *slog.Logger) {
	warn := func(text string) { logger.Warn(text, "face", f.Name, "app", app, "policy", p.Name) }
	if f.SeesNoAnswers && len(p.Refund)+len(p.CountOnly) > 0 {
		warn("a face sees no answers, so none gives units of this policy back")
	}

	switch {
	case f.NamesCosts && !p.Cost.IsOne():
		warn("a face is told what a request costs, so the cost of this policy means nothing there")
	case f.SeesNoAnswers && p.Cost.SettledByAnswer():
		warn("a face sees no answers, so the estimate of this policy is what a request costs there")
	}
}

// WarnOfRefusals warns of each face that does not answer clients, and so has not the refusals of
// the configuration.
func (e *Engine) WarnOfRefusals() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, l := range e.limiters {
		if !l.face.AnswersClients {
			e.logger.Warn("a face does not answer clients, so the refusals of the configuration do not apply there",
				"face", key.face, "app", key.app)
		}
	}
}

// Limiters returns the limiters that were made so far, and the application and face of
// each, ordered by these.
func (e *Engine) Limiters() (limiters []*limiter.Limiter, names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()

	byName := map[string]*limiter.Limiter{}
	for key, l := range e.limiters {
		byName[key.app+", "+key.face] = l.limiter
	}

	names = slices.Sorted(maps.Keys(byName))
	for _, name := range names {
		limiters = append(limiters, byName[name])
	}
	return limiters, names
}

// Ready returns nil if policies are in force in every limiter, and otherwise an error
// that names the applications without. They stay in force while the source is away, and
// after a revision that cannot be put in force.
func (e *Engine) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return errStopped
	}

	var errs []error
	for key, l := range e.limiters {
		if s := l.follower.Status(); s.Version == "" {
			errs = append(errs, fmt.Errorf("no policies of %q are in force for the face %s: %w", key.app, key.face,
				errors.Join(s.SourceErr, s.RefusedErr)))
		}
	}
	return errors.Join(errs...)
}

// Unnamed returns the applications that no policy names, so that nothing is limited there.
func (e *Engine) Unnamed(ctx context.Context) (apps []string, err error) {
	s, err := e.source.Load(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, app := range e.options.Apps {
		if !slices.ContainsFunc(s.Policies, func(p policy.Policy) bool { return slices.Contains(p.Apps, app) }) {
			apps = append(apps, app)
		}
	}
	return apps, nil
}

// Shutdown lets the requests that wait have their turn, as limiter.Limiter.Shutdown does,
// for all limiters at once. Call it beside the Shutdown of the servers, with the same
// context.
func (e *Engine) Shutdown(ctx context.Context) error {
	all := e.all() // without the lock: the turn of a request may take until ctx ends
	errs := make([]error, len(all))
	var done sync.WaitGroup
	for i, l := range all {
		done.Go(func() { errs[i] = l.limiter.Shutdown(ctx) })
	}
	done.Wait()
	return errors.Join(errs...)
}

func (e *Engine) all() []*followed {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]*followed, 0, len(e.limiters))
	for _, l := range e.limiters {
		list = append(list, l)
	}
	return list
}

// Close stops following, refuses all waiting requests, and closes the store after the
// leases that are being released. It may be called again.
func (e *Engine) Close() error {
	e.mu.Lock()
	again := e.stopped
	e.stopped = true
	e.mu.Unlock()
	if again {
		return nil
	}

	// The policies are not followed any more before limiters end, and the store ends last: leases
	// are released in it.
	e.end()
	var errs []error
	for _, l := range e.all() {
		errs = append(errs, l.follower.Close(), l.limiter.Close())
	}
	return errors.Join(append(errs, e.shared.close())...)
}
