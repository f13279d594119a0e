// This file has the command that examines a Redis.

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/store/redisstore"
)

var doctorCommand = command{
	name: "doctor", args: "",
	does: "examines a Redis: permissions, memory, version, replicas, clock, distance",
	examples: []string{
		"headgate doctor -redis redis://127.0.0.1:6379",
		"headgate doctor -redis rediss+cluster://redis-1,redis-2 -prefix shop:",
		"headgate doctor -json | jq -r '.findings[] | select(.level != \"ok\") | .text'",
	},
	setup: func(f *flag.FlagSet) func(*env, []string) int {
		var r redisFlags
		r.define(f)
		return func(e *env, args []string) int { return examine(e, args, &r) }
	},
}

// The levels of what is found.
const (
	levelOK   = "ok"
	levelWarn = "warn" // it works, and may not be meant
	levelFail = "fail" // limits are lost, or requests are not decided
)

// diagnosis is one thing that was examined.
type diagnosis struct {
	Level  string `json:"level"`
	Check  string `json:"check"`
	Server string `json:"server,omitempty"` // "" if there is only one, or for all
	Text   string `json:"text"`
	Docs   string `json:"docs"` // the page that explains it
}

// doctor collects what it finds.
type doctor struct {
	flags   *redisFlags
	client  redis.UniversalClient
	servers []*examined
	found   []diagnosis
}

// examined is a server that may have keys.
type examined struct {
	addr   string
	client *redis.Client
	info   map[string]string // of INFO
}

func examine(e *env, args []string, f *redisFlags) int {
	if len(args) > 0 {
		return e.fail("doctor: %q is no flag, and there is no operand", safe(textform.Clip(args[0])))
	}
	o, err := f.options()
	if err != nil {
		return e.failed("doctor", err)
	}

	ctx, end := e.context()
	defer end()

	// A Redis that does not answer is what was found.
	d := &doctor{flags: f}
	if d.client, err = f.connect(ctx); err != nil {
		d.add(levelFail, "reach", "", "docs/redis.md#when-redis-does-not-answer", "%s", err)
		return d.print(e)
	}
	defer d.client.Close()

	d.reach(ctx, o)
	for _, s := range d.servers {
		d.examineServer(ctx, s)
	}
	d.together(ctx)
	if ctx.Err() != nil {
		return e.fail("doctor: interrupted")
	}
	return d.print(e)
}

// add adds a finding about a server, "" for all.
func (d *doctor) add(level, check, server, docs, format string, args ...any) {
	if len(d.servers) < 2 {
		server = ""
	}
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	d.found = append(d.found, diagnosis{level, check, server, text, docs})
}

// print prints what was found, and returns the exit code.
func (d *doctor) print(e *env) int {
	n := map[string]int64{}
	for _, x := range d.found {
		n[x.Level]++
	}

	code := fine
	if n[levelFail] > 0 {
		code = findings
	}
	if d.flags.json {
		return max(code, e.printJSON(map[string]any{
			"findings": d.found, "failures": n[levelFail], "warnings": n[levelWarn],
		}))
	}

	// A line has what was found, and the page that explains it.
	colors := map[string]string{levelOK: green, levelWarn: yellow, levelFail: red}
	for _, x := range d.found {
		server := ""
		if x.Server != "" {
			server = " " + safe(x.Server)
		}
		level := e.paint(colors[x.Level], x.Level) + strings.Repeat(" ", 5-len(x.Level))
		fmt.Fprintf(e.out, "%s%s%s: %s (%s)\n", level, x.Check, server, safe(x.Text), x.Docs)
	}
	fmt.Fprintf(e.out, "%s, %s\n", counted(n[levelFail], "failure"), counted(n[levelWarn], "warning"))
	return code
}

// reach finds the servers, and says how they are reached.
func (d *doctor) reach(ctx context.Context, o *redis.UniversalOptions) {
	const docs = "docs/redis.md#when-redis-does-not-answer"
	switch c := d.client.(type) {
	case *redis.ClusterClient:
		// The servers are asked one after the other later, so that they come in order.
		var mu sync.Mutex
		err := c.ForEachMaster(ctx, func(_ context.Context, server *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			d.servers = append(d.servers, &examined{addr: server.Options().Addr, client: server})
			return nil
		})
		if err != nil {
			d.add(levelFail, "reach", "", docs, "the servers of the Cluster are not known: %s", explained(err))
		}
		slices.SortFunc(d.servers, func(a, b *examined) int { return cmp.Compare(a.addr, b.addr) })
		d.add(levelOK, "reach", "", docs, "a Cluster of %s", counted(int64(len(d.servers)), "master"))

	case *redis.Client:
		d.servers = []*examined{{addr: o.Addrs[0], client: c}}
		if o.MasterName == "" {
			d.add(levelOK, "reach", "", docs, "%s answers", o.Addrs[0])
			return
		}
		d.sentinels(ctx, o)
	}
}

// sentinels asks each sentinel that the URL names for the master.
func (d *doctor) sentinels(ctx context.Context, o *redis.UniversalOptions) {
	const docs = "docs/redis.md#when-redis-does-not-answer"
	masters, answered := map[string]bool{}, 0
	for _, addr := range o.Addrs {
		failover := o.Failover()
		s := redis.NewSentinelClient(&redis.Options{Addr: addr, Username: failover.SentinelUsername,
			Password: failover.SentinelPassword, TLSConfig: o.TLSConfig, DialTimeout: o.DialTimeout, DialerRetries: 1,
			MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true})
		ctx, cancel := context.WithTimeout(ctx, callTime)
		master, err := s.GetMasterAddrByName(ctx, o.MasterName).Result()
		cancel()
		s.Close()

		// One that answers is enough for now, and a failover needs most of them.
		if err != nil {
			d.add(levelWarn, "reach", "", docs, "the sentinel %s does not know the master: %s", addr, explained(err))
			continue
		}
		answered++
		masters[strings.Join(master, ":")] = true
	}

	if len(masters) > 1 {
		d.add(levelFail, "reach", "", docs, "the sentinels name %d different masters", len(masters))
		return
	}
	d.add(levelOK, "reach", "", docs, "%d of %s name one master", answered, counted(int64(len(o.Addrs)), "sentinel"))
}

// examineServer examines one server that has keys.
func (d *doctor) examineServer(ctx context.Context, s *examined) {
	ctx, cancel := context.WithTimeout(ctx, 4*callTime)
	defer cancel()

	text, err := s.client.Info(ctx).Result()
	if err != nil && !rediscall.Forbids(err) {
		d.add(levelFail, "reach", s.addr, "docs/redis.md#when-redis-does-not-answer", "it does not answer: %s",
			explained(err))
		return
	}
	s.info = infoOf(text)

	d.version(s)
	d.permissions(ctx, s)
	d.memory(s)
	d.replicas(ctx, s)
	d.persistence(ctx, s)
	d.clock(ctx, s)
	d.distance(ctx, s)
}

// infoOf reads the answer of INFO.
func infoOf(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// together examines what all servers are for.
func (d *doctor) together(ctx context.Context) {
	if _, ok := d.client.(*redis.ClusterClient); ok && len(d.servers) > 0 {
		d.slots(ctx, d.servers[0])
	}
	d.decision(ctx)
}

// decision has Redis decide one request, under a rule of its own. Its key is gone a second later.
func (d *doctor) decision(ctx context.Context) {
	const docs = "docs/redis.md#keys-and-permissions"
	store, err := redisstore.New(d.client, redisstore.Options{Prefix: d.flags.prefix, Timeout: callTime})
	if err != nil {
		d.add(levelFail, "scripts", "", docs, "%s", err)
		return
	}

	op := core.Op{Rule: "headgate-doctor", Key: rand.Text(), Limit: core.MustParseLimit("1/1s"), Cost: 1}
	var out [1]core.Decision
	switch err := store.Apply(ctx, []core.Op{op}, out[:]); {
	case errors.Is(err, redisstore.ErrPermission): // which has a finding of its own
	case err != nil:
		d.add(levelFail, "scripts", "", docs, "a request cannot be decided: %s", err)
	case !out[0].Allowed || out[0].Remaining != 0:
		d.add(levelFail, "scripts", "", docs, "a first request under 1/1s was decided as %+v", out[0])
	default:
		d.add(levelOK, "scripts", "", docs, "a request was decided, by a script as services send it")
	}
}

// distance measures round trips.
func (d *doctor) distance(ctx context.Context, s *examined) {
	const docs, trips = "docs/redis.md#timeouts", 20
	var took []time.Duration
	for range trips {
		begin := time.Now()
		if err := s.client.Ping(ctx).Err(); err != nil {
			// A missing permission is a finding of its own.
			if !rediscall.Forbids(err) {
				d.add(levelFail, "distance", s.addr, docs, "a round trip failed: %s", explained(err))
			}
			return
		}
		took = append(took, time.Since(begin))
	}

	slices.Sort(took)
	level, text := judged(took[trips/2], took[trips-1])
	d.add(level, "distance", s.addr, docs, "%s", text)
}

// judged says whether calls have time for round trips of the time. A call has its default timeout,
// or three round trips up to its greatest.
func judged(middle, longest time.Duration) (level, text string) {
	text = fmt.Sprintf("a round trip takes %s, the longest %s", short(middle), short(longest))
	switch {
	case 3*middle > redisstore.DefaultMaxTimeout:
		return levelFail, fmt.Sprintf("%s: three do not fit into %s, the longest that a call may take by default",
			text,
			redisstore.DefaultMaxTimeout)
	case 2*middle > redisstore.DefaultTimeout:
		return levelWarn, fmt.Sprintf("%s: two do not fit into %s, so calls get more time", text,
			redisstore.DefaultTimeout)
	}
	return levelOK, fmt.Sprintf("%s: two fit well into the %s of a call", text, redisstore.DefaultTimeout)
}

// short writes a short time in about three digits.
func short(d time.Duration) string {
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}
