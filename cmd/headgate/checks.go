// This file examines one server.

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/internal/textform"
)

// number returns a number of INFO, 0 if there is none.
func (e *examined) number(name string) int64 {
	n, _ := strconv.ParseInt(e.info[name], 10, 64)
	return n
}

// setting returns a setting of the server, and false if the user may not read it.
func (e *examined) setting(ctx context.Context, name string) (string, bool) {
	values, err := e.client.ConfigGet(ctx, name).Result()
	value, ok := values[name]
	return value, ok && err == nil
}

// version says which server it is, and what is known of its version.
func (d *doctor) version(e *examined) {
	const docs = "docs/redis.md#servers"
	name, text := versionOf(e.info)
	v, ok := parseVersion(text)

	// A user without INFO learns nothing.
	switch {
	case text == "":
		d.add(levelWarn, "version", e.addr, docs, "the server does not say its version")
	case !ok:
		d.add(levelWarn, "version", e.addr, docs, "%s %s is no version that is known", name, textform.Clip(text))
	case hasHole(name, v):
		d.add(levelWarn, "version", e.addr, docs, "%s %s has %s, by which users who may run scripts can run any "+
			"program, "+
			"unless the distribution has mended it; versions without it are %s and later", name, text, hole,
			withoutHole(name))
	case v[0] < 7:
		d.add(levelWarn, "version", e.addr, docs, "%s %s refuses all writes when its memory is full, and was not "+
			"tried",
			name, text)
	default:
		d.add(levelOK, "version", e.addr, docs, "%s %s, without %s", name, text, hole)
	}
}

// permissions tries each command that services need, on a key under the prefix that they never use.
func (d *doctor) permissions(ctx context.Context, e *examined) {
	const docs = "docs/redis.md#keys-and-permissions"
	lacking, err := lackingOf(ctx, e.client, d.flags.prefix)
	switch {
	case err != nil:
		d.add(levelFail, "permissions", e.addr, docs, "they cannot be tried: %s", explained(err))
	case len(lacking) > 0:
		d.add(levelFail, "permissions", e.addr, docs, "the user may not run %s on keys of the prefix %s; %s",
			strings.Join(lacking, ", "), d.flags.prefix, rediscall.Remedy(d.client, d.flags.prefix))
	default:
		d.add(levelOK, "permissions", e.addr, docs, "the user may do all that services need under the prefix %s",
			d.flags.prefix)
	}
}

// lackingOf returns the commands that the user may not run.
func lackingOf(ctx context.Context, c *redis.Client, prefix string) (lacking []string, err error) {
	key := prefix + "{*}::" // no subject is written so

	// A denied EVAL hides all that a script would try.
	names, err := c.Eval(ctx, rediscall.Trial(rediscall.OnKeys()...), nil, key).StringSlice()
	if err != nil && !rediscall.Forbids(err) {
		return nil, err
	}
	if err != nil {
		names = []string{"eval"}
	}

	// Each is sent by itself, and answered although it finds nothing.
	const unknown = "0000000000000000000000000000000000000000"
	for _, trial := range []struct {
		names string
		do    func() error
	}{
		{"evalsha", func() error { return c.EvalSha(ctx, unknown, nil, key).Err() }},
		{"info", func() error { return c.Info(ctx, "memory").Err() }},
		{"ping", func() error { return c.Ping(ctx).Err() }},
		{"multi and exec", func() error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Exists(ctx, key).Err() })
			return err
		}},
		{"subscribe", func() error {
			s := c.Subscribe(ctx, prefix+"{policies}:changed")
			defer s.Close()
			_, err := s.Receive(ctx)
			return err
		}},
	} {
		if rediscall.Forbids(trial.do()) {
			names = append(names, trial.names)
		}
	}
	return slices.Compact(names), nil
}

// memory says whether keys may be evicted, and how full the server is.
func (d *doctor) memory(e *examined) {
	const docs, full = "docs/redis.md#keys-and-permissions", 90
	evicts, most, used := e.info["maxmemory_policy"], e.number("maxmemory"), e.number("used_memory")

	// Keys of limits have a time to live, so a volatile policy evicts just them.
	switch {
	case evicts == "":
		d.add(levelWarn, "memory", e.addr, docs, "the server does not say whether it evicts keys")
	case evicts != "noeviction" && most > 0:
		d.add(levelFail, "memory", e.addr, docs, "maxmemory-policy is %s: when %s are full it evicts keys, and "+
			"with them "+
			"the counts of callers; set noeviction, as all keys of limits expire by themselves", evicts, sized(most))
	case evicts != "noeviction":
		d.add(levelWarn, "memory", e.addr, docs, "maxmemory-policy is %s, which evicts nothing only as maxmemory "+
			"is 0; "+
			"set noeviction", evicts)
	case most == 0:
		d.add(levelOK, "memory", e.addr, docs, "noeviction, %s in use, and no maxmemory", sized(used))
	case used*100 >= most*full:
		d.add(levelWarn, "memory", e.addr, "docs/redis.md#when-the-memory-of-redis-is-full",
			"noeviction, and %s of %s are in use", sized(used), sized(most))
	default:
		d.add(levelOK, "memory", e.addr, docs, "noeviction, %s of %s in use", sized(used), sized(most))
	}
}

// sized writes a number of bytes in three digits.
func sized(n int64) string {
	v, units := float64(n), []string{"B", "kB", "MB", "GB", "TB"}
	for ; v >= 1000 && len(units) > 1; units = units[1:] {
		v /= 1000
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " " + units[0]
}

// replicas says what a failover would lose, and whether writes are refused for want of replicas.
func (d *doctor) replicas(ctx context.Context, e *examined) {
	const docs = "docs/redis.md#what-redis-does-not-promise"
	if e.info["role"] == "slave" {
		d.add(levelFail, "replicas", e.addr, docs, "it is a replica, which counts nothing: name the master")
		return
	}
	if e.info["role"] == "" {
		d.add(levelWarn, "replicas", e.addr, docs, "the server does not say whether it has replicas")
		return
	}

	// Without enough good replicas every write is refused.
	n := e.number("connected_slaves")
	text, _ := e.setting(ctx, "min-replicas-to-write")
	if least, _ := strconv.ParseInt(text, 10, 64); least > 0 && e.number("min_slaves_good_slaves") < least {
		d.add(levelFail, "replicas", e.addr, docs, "min-replicas-to-write is %d, and %d are good: it refuses all "+
			"writes",
			least, e.number("min_slaves_good_slaves"))
		return
	}

	// A replica confirms what it has once a second.
	var late []string
	for i := range n {
		replica := fieldsOf(e.info[fmt.Sprintf("slave%d", i)])
		lag, err := strconv.Atoi(replica["lag"])
		if replica["state"] != "online" || err != nil || lag > maxLag {
			late = append(late, fmt.Sprintf("%s:%s is %s and confirmed %ss ago", replica["ip"], replica["port"],
				replica["state"], replica["lag"]))
		}
	}

	switch {
	case len(late) > 0:
		d.add(levelWarn, "replicas", e.addr, docs, "%s: a failover forgets what was counted since",
			strings.Join(late, ", "))
	case n == 0:
		d.add(levelOK, "replicas", e.addr, docs, "none: while the server is away, instances decide in memory")
	default:
		d.add(levelOK, "replicas", e.addr, docs, "%s, none more than %ds behind", counted(n, "replica"), maxLag)
	}
}

// maxLag is after how many seconds a replica is late.
const maxLag = 2

// fieldsOf reads "a=b,c=d" of INFO.
func fieldsOf(text string) map[string]string {
	fields := map[string]string{}
	for _, field := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	return fields
}

// persistence says what a restart loses.
func (d *doctor) persistence(ctx context.Context, e *examined) {
	const docs = "docs/promises.md#bounded"
	saves, known := e.setting(ctx, "save")
	stops, _ := e.setting(ctx, "stop-writes-on-bgsave-error")

	// A disk that is full stops the writes. What is kept there matters to a restart.
	switch {
	case e.info["aof_enabled"] == "":
		d.add(levelWarn, "persistence", e.addr, docs, "the server does not say what it keeps on disk")
	case e.info["rdb_last_bgsave_status"] == "err" && stops != "no":
		d.add(levelFail, "persistence", e.addr, docs, "the last snapshot on disk failed, so it refuses all writes")
	case e.info["aof_enabled"] == "1" && e.info["aof_last_write_status"] == "err":
		d.add(levelFail, "persistence", e.addr, docs, "the last write to the append-only file failed, "+
			"so it refuses all writes")
	case e.info["aof_enabled"] == "1":
		d.add(levelOK, "persistence", e.addr, docs, "an append-only file: a restart keeps counts, bans and policies")
	case saves != "":
		d.add(levelOK, "persistence", e.addr, docs, "snapshots alone: a restart forgets what came after the last, "+
			"%s ago",
			textform.Duration(time.Since(time.Unix(e.number("rdb_last_save_time"), 0)).Truncate(time.Second)))
	case !known:
		d.add(levelOK, "persistence", e.addr, docs, "no append-only file: a restart forgets counts and bans, "+
			"unless there are snapshots")
	default:
		d.restart(ctx, e)
	}
}

// restart says what a server forgets that keeps nothing on disk.
func (d *doctor) restart(ctx context.Context, e *examined) {
	const docs = "docs/promises.md#bounded"
	n, err := e.client.Exists(ctx, d.flags.prefix+"{policies}:snapshot").Result()
	if err == nil && n > 0 {
		d.add(levelWarn, "persistence", e.addr, docs, "nothing is on disk: a restart forgets counts and bans, "+
			"and the policies that are published here")
		return
	}
	d.add(levelOK, "persistence", e.addr, docs, "nothing is on disk: a restart forgets counts and bans")
}

// maxOff is how far the clock of a server may be off without a warning.
const maxOff = time.Second

// clock compares the clock of the server with the one here.
func (d *doctor) clock(ctx context.Context, e *examined) {
	const docs = "docs/promises.md#bounded"
	begin := time.Now()
	at, err := e.client.Time(ctx).Result()
	trip := time.Since(begin)

	// A missing permission is a finding of its own.
	if err != nil {
		if !rediscall.Forbids(err) {
			d.add(levelFail, "clock", e.addr, docs, "the server does not say its time: %s", explained(err))
		}
		return
	}

	// The server has read its clock at some instant of the round trip.
	off := at.Sub(begin.Add(trip / 2))
	where := "ahead of"
	if off < 0 {
		off, where = -off, "behind"
	}
	if off > maxOff+trip {
		d.add(levelWarn, "clock", e.addr, docs, "it is %s %s that of this machine, and limits go by it",
			short(off), where)
		return
	}
	d.add(levelOK, "clock", e.addr, docs, "less than %s off that of this machine", maxOff)
}

// allSlots is how many slots a Cluster has.
const allSlots = 16384

// slots says whether every key of a Cluster has a server.
func (d *doctor) slots(ctx context.Context, e *examined) {
	const docs = "docs/outages.md#what-the-memory-does"
	text, err := e.client.ClusterInfo(ctx).Result()
	info := infoOf(text)
	if err != nil && !rediscall.Forbids(err) {
		d.add(levelFail, "slots", "", docs, "the Cluster does not say its state: %s", explained(err))
		return
	}
	if err != nil {
		d.add(levelOK, "slots", "", docs, "the user may not ask for the state of the Cluster")
		return
	}

	// A slot without a server stops all others too, unless a setting says otherwise.
	well, _ := strconv.Atoi(info["cluster_slots_ok"])
	covers, known := e.setting(ctx, "cluster-require-full-coverage")
	switch {
	case well < allSlots && info["cluster_state"] == "ok":
		d.add(levelFail, "slots", "", docs, "%d of %d slots have a server that answers: the keys of the others are "+
			"decided "+
			"in memory", well, allSlots)
	case well < allSlots || info["cluster_state"] != "ok":
		d.add(levelFail, "slots", "", docs, "the state of the Cluster is %s, and %d of %d slots have a server that "+
			"answers: "+
			"no key is counted", info["cluster_state"], well, allSlots)
	case known && covers != "no":
		d.add(levelWarn, "slots", "", docs, "all have a server; cluster-require-full-coverage is %s, so a master "+
			"that is "+
			"away stops all others: set no", covers)
	default:
		d.add(levelOK, "slots", "", docs, "all %d have a server", allSlots)
	}
}
