package meter

import "strings"

// Kind is a kind of instruments.
type Kind uint8

const (
	Counter Kind = iota
	UpDown
	Gauge
	Histogram
)

// String returns the kind in lower case, as the documentation has it.
func (k Kind) String() string { return [...]string{"counter", "up-down", "gauge", "histogram"}[k] }

// Instrument is what is known of a metric before anything is measured.
type Instrument struct {
	Name       string // of OpenTelemetry
	Kind       Kind
	Unit       string // of UCUM: "s", or what is counted in braces
	Help       string
	Attributes []string  // their names, in the order of the values of a cell
	Buckets    []float64 // of a histogram
}

// Names of attributes.
const (
	Rule   = "headgate.rule"
	Result = "headgate.result"
	Flow   = "headgate.flow"
	Store  = "headgate.store"
	Mode   = "headgate.mode"
	Error  = "error.type"
)

// The instruments.
var (
	Requests = &Instrument{
		Name: "headgate.requests", Unit: "{request}", Attributes: []string{Result},
		Help: "Requests by what became of them, once each.",
	}
	Decisions = &Instrument{
		Name: "headgate.decisions", Unit: "{decision}", Attributes: []string{Rule, Result},
		Help: "Decisions by rule and result, one for each rule that applies to a request.",
	}
	Units = &Instrument{
		Name: "headgate.units", Unit: "{unit}", Attributes: []string{Rule, Flow},
		Help: "Units that were charged by decisions, given back, or charged afterwards.",
	}
	TimeInQueue = &Instrument{
		Name: "headgate.request.time_in_queue", Kind: Histogram, Unit: "s", Attributes: []string{Rule, Result},
		Help:    "How long requests that waited for their turn did so.",
		Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}
	Queued = &Instrument{
		Name: "headgate.queued_requests", Kind: UpDown, Unit: "{request}", Attributes: []string{Rule},
		Help: "Requests that wait for their turn now.",
	}
	Leases = &Instrument{
		Name: "headgate.active_leases", Kind: UpDown, Unit: "{lease}", Attributes: []string{Rule},
		Help: "Requests that hold a lease now.",
	}
	LeaseDuration = &Instrument{
		Name: "headgate.lease.duration", Kind: Histogram, Unit: "s", Attributes: []string{Rule},
		Help:    "How long leases were held.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600},
	}
	CallDuration = &Instrument{
		Name: "headgate.store.call.duration", Kind: Histogram, Unit: "s", Attributes: []string{Store, Error},
		Help:    "How long calls of a store's server took, those that failed too.",
		Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25},
	}
	StoreErrors = &Instrument{
		Name: "headgate.store.errors", Unit: "{error}", Attributes: []string{Store, Error},
		Help: "Calls of a store's server that failed, by the type of the error.",
	}
	StoreMode = &Instrument{
		Name: "headgate.store.mode", Kind: Gauge, Attributes: []string{Mode},
		Help: "1 for what decides now: the store, the fallback of this process (local), " +
			"or nothing (open, closed); 0 for the others.",
	}
	ModeChanges = &Instrument{
		Name: "headgate.store.mode_changes", Unit: "{change}", Attributes: []string{Mode},
		Help: "Changes of breakers, by what decides afterwards.",
	}
	BatchSize = &Instrument{
		Name: "headgate.batch.size", Kind: Histogram, Unit: "{operation}",
		Help:    "Operations that shared a call of a store's server.",
		Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
	}
	Keys = &Instrument{
		Name: "headgate.keys", Kind: Gauge, Unit: "{key}", Attributes: []string{Store},
		Help: "Keys that stores in this process hold.",
	}
	KeysOverflow = &Instrument{
		Name: "headgate.keys.overflow", Kind: Gauge, Unit: "{key}", Attributes: []string{Store},
		Help: "Overflow buckets that stores in this process hold, which keys share when the store is full.",
	}
	CachedRefusals = &Instrument{
		Name: "headgate.refusals.cached", Unit: "{request}", Attributes: []string{Rule},
		Help: "Requests that were refused by an earlier answer, without the store's server.",
	}
	Near = &Instrument{
		Name: "headgate.near", Unit: "{request}", Attributes: []string{Rule},
		Help: "Requests that took a key near its limit, once on each way up.",
	}
	PrefetchHeld = &Instrument{
		Name: "headgate.prefetch.held", Kind: Gauge, Unit: "{unit}", Attributes: []string{Rule},
		Help: "Units that this process has taken ahead and not used yet.",
	}
	PolicyRevision = &Instrument{
		Name: "headgate.policy.revision", Kind: Gauge, Unit: "{revision}",
		Help: "The revision of the policies in force: its number or, if it is none, a hash of it, " +
			"equal on all instances.",
	}
	PolicyReloads = &Instrument{
		Name: "headgate.policy.reloads", Unit: "{reload}", Attributes: []string{Result},
		Help: "Revisions of the policies that were put in force or refused.",
	}
	Bans = &Instrument{
		Name: "headgate.bans", Kind: UpDown, Unit: "{ban}", Attributes: []string{Rule},
		Help: "Bans that this process has met and that have not ended yet.",
	}
)

// Instruments are all instruments, in the order of the documentation.
var Instruments = []*Instrument{
	Requests, Decisions, Units, TimeInQueue, Queued, Leases, LeaseDuration, CallDuration, StoreErrors,
	StoreMode, ModeChanges, BatchSize, Keys, KeysOverflow, CachedRefusals, Near, PrefetchHeld,
	PolicyRevision, PolicyReloads, Bans,
}

// Prometheus returns the name of the instrument in Prometheus, which is the one that the
// conventions of OpenTelemetry translate Name to.
func (i *Instrument) Prometheus() string {
	name := Label(i.Name)
	if i.Unit == "s" {
		name += "_seconds"
	}
	if i.Kind == Counter {
		name += "_total"
	}
	return name
}

// Label returns the label of Prometheus for an attribute.
func Label(attribute string) string { return strings.ReplaceAll(attribute, ".", "_") }

// Labels returns the labels of the instrument in Prometheus.
func (i *Instrument) Labels() []string {
	labels := make([]string, len(i.Attributes))
	for n, a := range i.Attributes {
		labels[n] = Label(a)
	}
	return labels
}
