package mcpmw

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/setup"
	"github.com/headgate/headgate/limiter"
)

// Config is what a program adds to the middleware of [New]. Each field may be unset.
type Config struct {
	// Methods are the methods whose calls are counted. All others reach the handlers uncounted.
	// Without any they are those that have the server work for the client: "tools/call",
	// "resources/read", "prompts/get" and "completion/complete". What a session needs to begin
	// and to go on, such as "initialize", "ping" and the lists, is counted only if it is named
	// here. So are custom methods. Notifications have no answer and are never counted: New
	// logs one here as a mistake.
	Methods []string

	// Known reports whether the server has the tool, the resource or the prompt that a call
	// names. Those for which it returns false, or panics, share the key "" under [Tool],
	// [Resource] and [Prompt]. Without it each name that a client makes up has a count of its
	// own, which is a key in the store until its limit is fresh again.
	Known func(*Call) bool

	// Skip makes the middleware ignore the calls for which it returns true: they reach the
	// handlers uncounted. A call for which it panics is counted, and the panic is an error for
	// OnError.
	Skip func(*Call) bool

	// Refused answers refused calls. They end with the error that it returns, which should be
	// a [*jsonrpc.Error], or if that is nil, with that of the limiter. The status and the fields
	// of an answer over HTTP are those of the limiter in both cases. It must not keep the
	// admission.
	//
	// The templates of the limiter, such as the Refused of its own Config, make HTTP answers. A
	// call that is refused without an error of this function has them called too, for their
	// delays (see [limiter.Tarpit]), but not sent.
	Refused func(*Call, *limiter.Admission) error

	// Failed is like Refused, for calls that end with [CodeUnavailable] because the store could
	// not decide and the limiter fails closed, or because too many requests wait already; see
	// [limiter.Admission.Outcome].
	Failed func(*Call, *limiter.Admission) error
}

// defaultMethods are those that are counted without Config.Methods.
var defaultMethods = []string{toolsCall, resourcesRead, promptsGet, "completion/complete"}

const (
	toolsCall     = "tools/call"
	resourcesRead = "resources/read"
	promptsGet    = "prompts/get"
)

// configOf returns the Config of New and the methods that it counts, and logs the mistakes in it
// and in the limiter.
func configOf(l *limiter.Limiter, list []Config) (Config, map[string]bool) {
	config, err := setup.ConfigOf(l, list)
	counted := map[string]bool{}

	methods := config.Methods
	if len(methods) == 0 {
		methods = defaultMethods
	}

	// A notification has no answer, so its sender would not hear that it was refused.
	for _, m := range methods {
		if m == "" || strings.HasPrefix(m, "notifications/") {
			err = errors.Join(err, fmt.Errorf("Config.Methods: %q is no method with an answer, and is not counted", m))
			continue
		}
		counted[m] = true
	}

	l.LogSetup("mcpmw.New", err)
	return config, counted
}
