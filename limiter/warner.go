package limiter

import (
	"log/slog"
	"maps"
	"math"
	"sync/atomic"
	"time"
)

const (
	// maxSeen is the maximum number of codes that are reported.
	maxSeen = 64

	// diagnosisTimeout bounds Diagnose.
	diagnosisTimeout = 5 * time.Second

	// minDiagnosisPause is the pause after the first incomplete diagnosis. Each pause
	// after it is twice as long, up to maxDiagnosisPause.
	minDiagnosisPause = time.Second
	maxDiagnosisPause = time.Hour

	// diagnosisPeriod is the pause after a complete diagnosis.
	diagnosisPeriod = time.Minute

	// noDiagnosis is the instant of the next diagnosis while one is running, and for
	// diagnosisPeriod after one is complete.
	noDiagnosis = math.MaxInt64
)

// warner reports every code once.
type warner struct {
	logger *slog.Logger // nil: the default one at the time
	off    bool
	seen   atomic.Pointer[map[string]bool] // the codes, replaced as a whole

	started       time.Time
	nextDiagnosis atomic.Int64  // when the store is to be asked, in nanoseconds since started
	pause         time.Duration // the latest; used only by the goroutine of the diagnosis
}

// start makes the warner ready for use.
func (w *warner) start(logger *slog.Logger) {
	w.logger = logger
	w.off = logger != nil && logger.Handler() == slog.DiscardHandler
	w.seen.Store(&map[string]bool{})
	w.started = time.Now()
	if w.off {
		w.nextDiagnosis.Store(noDiagnosis)
	}
}

// diagnosisDue reports whether the caller is to ask the store now. It reads the clock only
// while the store has yet to answer.
func (w *warner) diagnosisDue() bool {
	due := w.nextDiagnosis.Load()
	if due == noDiagnosis || due > 0 && time.Since(w.started) < time.Duration(due) {
		return false
	}
	return w.nextDiagnosis.CompareAndSwap(due, noDiagnosis)
}

// diagnoseLater makes the first request after a pause start another diagnosis.
func (w *warner) diagnoseLater() {
	w.pause = min(max(2*w.pause, minDiagnosisPause), maxDiagnosisPause)
	w.nextDiagnosis.Store(int64(time.Since(w.started) + w.pause))
}

// diagnoseAgain makes the first request after diagnosisPeriod start another diagnosis. A
// timer does that, so that no request reads the clock in the meantime.
func (w *warner) diagnoseAgain() {
	w.pause = 0
	time.AfterFunc(diagnosisPeriod, func() { w.nextDiagnosis.Store(0) })
}

// hasSeen reports whether the code was reported before, or is not to be reported.
func (w *warner) hasSeen(code string) bool { return w.off || (*w.seen.Load())[code] }

// markSeen reports whether this is the first finding with the code.
func (w *warner) markSeen(code string) bool {
	for {
		known := w.seen.Load()
		if (*known)[code] || len(*known) >= maxSeen {
			return false
		}
		next := maps.Clone(*known)
		next[code] = true
		if w.seen.CompareAndSwap(known, &next) {
			return true
		}
	}
}

// Codes of findings. They do not change.
const (
	// CodeUnheeded: a private or loopback peer sends X-Forwarded-For or
	// Forwarded, and a rule counts by the address of that peer.
	CodeUnheeded = "HG001"

	// CodeGinTrustsAll: a key comes from gin.Context.ClientIP, and the engine
	// trusts every proxy.
	CodeGinTrustsAll = "HG002"

	// CodeOneKey: all of the first requests under a rule fell on one key, which
	// is empty or the address of the peer.
	CodeOneKey = "HG003"

	// CodeTwice: a request met the same limiter twice.
	CodeTwice = "HG004"

	// CodeTooCostly: a request cost more than its limit can ever hold.
	CodeTooCostly = "HG005"

	// CodeNoKey: a request met a rule without a Key function, so that every
	// request is answered with a 503.
	CodeNoKey = "HG009"

	// CodeNoAddress: a rule counts by the address of the peer, and a connection has
	// none, as with a Unix socket.
	CodeNoAddress = "HG010"

	// CodeNotForwarded: a proxy that a rule trusts sent a request without the header
	// in which the rule reads the address of the caller.
	CodeNotForwarded = "HG011"

	// CodeFailsOpen: the store asks a server, and requests pass uncounted under some rules
	// while it cannot decide.
	CodeFailsOpen = "HG017"

	// CodeSharedDefault: two limiters in use over one store have a rule without a name, and
	// no Name, so their rules share the name "default" and its counts.
	CodeSharedDefault = "HG021"
)
