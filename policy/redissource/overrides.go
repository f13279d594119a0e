// This file has the overrides beside the policies.

package redissource

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

const (
	// MaxOverrideChanges is the maximum number of changes of an [OverrideBatch].
	MaxOverrideChanges = 1000

	// maxMissed is how many changes Redis keeps for instances that have missed their messages.
	maxMissed = 4096

	// scanPiece is how many overrides of a policy are read with one call.
	scanPiece = 1000
)

// The overrides have keys that begin with the prefix and "{policies}:overrides:":
//
//	state     a hash of "epoch", random; "version", which counts the changes; "mark", random,
//	          of the last batch with changes; "database" and "revision" of the Origin and the
//	          "label" of the last batch that had them; "filling" while a set is written anew
//	changed   a hash of the version at which the overrides of a policy were changed last, by
//	          its name, of the policies that have some
//	log       a list of the last changes, the newest first: those of "version" and before,
//	          each after the mark of its batch and a space
//	of:NAME   a hash of the overrides of the policy: the texts of policy.ParseOverride, by key
//
// None of them expires. A version of the whole is the epoch, the number and the mark, with points
// between them. A server that took the place of one with later changes may give their numbers to
// others, but not their marks.

// overridesPrefix begins them.
func (s *Source) overridesPrefix() string {
	return strings.TrimSuffix(s.snapshot, "snapshot") + "overrides:"
}

// OverrideBatch are changes of overrides that are published in one step.
type OverrideBatch struct {
	// Changes have a key once, and one without a key comes before all others of its policy. There
	// are at most MaxOverrideChanges.
	Changes []policy.OverrideChange

	// From is the database, and its revision after the changes. The zero value is that of a
	// program without a database, to which Expected and Label do not apply.
	From Origin

	// Expected is the label that [Source.PublishedOverrides] has returned, whose overrides the
	// batch continues or removes. Label, of 1 to 64 bytes, is that of the overrides after
	// the batch, and of no other batch: a copy of the database has others. A batch whose label is
	// published is ignored, so it may be sent again.
	Expected, Label string

	// Reset removes all overrides of all policies first. It is how a database begins: what it
	// publishes without it has to continue what was published from it before.
	Reset bool

	// More says that another batch completes this one. Until then, instances keep the overrides
	// that they had before a Reset.
	More bool
}

// ErrTooManyOverrides is wrapped by errors of [Source.PublishOverrides] if a policy would have more
// than policy.MaxOverridesBeside overrides. Nothing was changed.
var ErrTooManyOverrides = fmt.Errorf("a policy has at most %d overrides", policy.MaxOverridesBeside)

// ErrOverridesLost is wrapped by errors of [Source.PublishOverrides] if what is published is not
// what the batch would continue: they have another label, or are of another database and only a
// batch with Reset is accepted. Nothing was changed.
var ErrOverridesLost = errors.New("the overrides that are published are not those of this database")

// PublishOverrides publishes changes and notifies the followers. It does not know the policies:
// [policy.Policy.CheckOverride] says whether one may have an override. If the policies are
// published from another database than that of From, PublishOverrides changes nothing and returns
// an [*OwnerError]. A program without a database may publish overrides beside any policies, unless
// a database has published some.
//
// After an error of the connection the changes may or may not have been published. Publishing them
// again is safe.
func (s *Source) PublishOverrides(ctx context.Context, b OverrideBatch) error {
	policies, changes, err := b.arguments()
	if err != nil {
		return fmt.Errorf("redissource: %w", err)
	}

	prefix := s.overridesPrefix()
	keys := []string{s.snapshot, prefix + "state", prefix + "changed", prefix + "log"}
	for _, name := range policies {
		keys = append(keys, prefix+"of:"+name)
	}
	args := append([]any{s.channel, prefix + "of:", crand.Text(), b.From.Database, b.From.Revision, flag(b.Reset),
		flag(b.More), policy.MaxOverridesBeside, maxMissed, b.Expected, b.Label}, changes...)

	var reply []any
	err = s.do(ctx, func(ctx context.Context) (err error) {
		reply, err = publishOverrides.Run(ctx, s.client, keys, args...).Slice()
		return err
	})
	if err != nil {
		return err
	}

	// Nothing was changed but after 0.
	switch reply[0] {
	case int64(1):
		version, _ := reply[1].(string)
		text, _ := reply[2].(string)
		return &OwnerError{version, readOrigin(version, text)}
	case int64(2):
		return fmt.Errorf("redissource: %w", ErrOverridesLost)
	case int64(3):
		return fmt.Errorf("redissource: policy %q: %w", textform.Clip(fmt.Sprint(reply[1])), ErrTooManyOverrides)
	}
	return nil
}

func flag(is bool) int {
	if is {
		return 1
	}
	return 0
}

// arguments returns the policies of a batch and its changes as the script takes them, or an error
// that names what no Redis should hold.
func (o *OverrideBatch) arguments() (policies []string, args []any, err error) {
	if len(o.Changes) > MaxOverrideChanges {
		return nil, nil, fmt.Errorf("%d changes are more than %d", len(o.Changes), MaxOverrideChanges)
	}

	errs := []error{o.From.check()}
	if o.From.Database != "" && (o.Label == "" || len(o.Label) > 64) {
		errs = append(errs, fmt.Errorf("%q is no label of overrides", textform.Clip(o.Label)))
	}
	seen := map[policy.OverrideChange]bool{}
	for _, c := range o.Changes {
		of := policy.OverrideChange{Policy: c.Policy, Key: c.Key}
		if seen[of] || c.Key == "" && slices.Contains(policies, c.Policy) {
			errs = append(errs, fmt.Errorf("policy %q: a key is changed twice, or before all are removed",
				textform.Clip(c.Policy)))
		}
		seen[of] = true

		if err := checkChange(c); err != nil {
			errs = append(errs, fmt.Errorf("policy %q: %w", textform.Clip(c.Policy), err))
		}

		// The keys of Redis are named once for each policy.
		i := slices.Index(policies, c.Policy)
		if i < 0 {
			policies, i = append(policies, c.Policy), len(policies)
		}
		entry, err := json.Marshal(c)
		errs = append(errs, err)
		args = append(args, i, c.Policy, c.Key, c.Text, entry)
	}
	return policies, args, errors.Join(errs...)
}

// checkChange returns what is wrong with a change, whatever its policy is.
func checkChange(c policy.OverrideChange) error {
	// The name of a policy ends a key of Redis.
	if strings.ContainsAny(c.Policy, "{}") || c.Policy == "" || len(c.Policy) > policy.MaxName {
		return errors.New("it is not the name of a policy")
	}
	if c.Key == "" {
		if c.Text != "" {
			return errors.New("the key is empty")
		}
		return nil
	}

	byUser := policy.Policy{Key: "user"} // which has most keys
	if err := byUser.CheckOverriddenKey(c.Key); err != nil || c.Text == "" {
		return err
	}
	_, err := policy.ParseOverride(c.Text)
	return err
}

// publishOverrides changes overrides and appends the changes to the log.
//
// KEYS: the snapshot of the policies, the state, what has changed, the log, and a hash for each
// policy of the changes. ARGV: the channel; what the keys of all hashes begin with; a random text,
// which is the mark of the batch, and the epoch if a new one begins;
// the id of the database, "" for none; its revision; 1 for a reset; 1 for more; how many overrides
// a policy may have; how many changes the log may; the label that the batch continues, and its own;
// then for each change the index of its policy from 0, its name, the key, the text, and the entry
// of the log. Reply: 0, or 1 with the version and the origin of a set of another database, 2 if
// something else is published than what the batch continues, or 3 with the policy that would have
// too many.
var publishOverrides = redis.NewScript(`
local state, changed, log = KEYS[2], KEYS[3], KEYS[4]
local database = ARGV[4]
local reset, more = ARGV[6] == '1', ARGV[7] == '1'

-- Only the owner of the set publishes overrides from a database.
local version = redis.call('HGET', KEYS[1], 'version') or ''
local origin = redis.call('HGET', KEYS[1], 'origin') or ''
local about, owner = string.match(origin, '^(%S+) ([a-z0-9]+) %d+$')
if database ~= '' and about == version and owner ~= database then
  return {1, version, origin}
end

local before = redis.call('HGET', state, 'database') or ''
local label = redis.call('HGET', state, 'label') or ''
local exists = redis.call('EXISTS', state) == 1
if before ~= database and (database == '' or not reset) then
  return {2}
end

-- A call that the client has repeated finds its own label.
if database ~= '' then
  if before == database and label == ARGV[11] then
    return {0}
  end
  if label ~= ARGV[10] or not reset and not exists then
    return {2}
  end
end

-- A policy that would have too many is found before anything is changed.
local size = {}
for i = 12, #ARGV, 5 do
  local p, key = tonumber(ARGV[i]), ARGV[i + 2]
  local hash = KEYS[5 + p]
  local s = size[p]
  if not s then
    s = {n = reset and 0 or redis.call('HLEN', hash), empty = reset}
    size[p] = s
  end
  if key == '' then
    s.n, s.empty = 0, true
  else
    local has = not s.empty and redis.call('HEXISTS', hash, key) == 1
    if ARGV[i + 3] == '' then
      s.n = s.n - (has and 1 or 0)
    else
      s.n = s.n + (has and 0 or 1)
    end
  end
end
for i = 12, #ARGV, 5 do
  if size[tonumber(ARGV[i])].n > tonumber(ARGV[8]) then
    return {3, ARGV[i + 1]}
  end
end

if reset then
  for _, name in ipairs(redis.call('HKEYS', changed)) do
    redis.call('UNLINK', ARGV[2] .. name)
  end
  redis.call('DEL', state, changed, log)
  redis.call('HSET', state, 'epoch', ARGV[3], 'version', 0, 'filling', 1)
elseif not exists then
  redis.call('HSET', state, 'epoch', ARGV[3], 'version', 0)
end

for i = 12, #ARGV, 5 do
  local hash, name, key, text = KEYS[5 + tonumber(ARGV[i])], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local number = redis.call('HINCRBY', state, 'version', 1)
  if key == '' then
    redis.call('UNLINK', hash)
  elseif text == '' then
    redis.call('HDEL', hash, key)
  else
    redis.call('HSET', hash, key, text)
  end
  if redis.call('EXISTS', hash) == 1 then
    redis.call('HSET', changed, name, number)
  else
    redis.call('HDEL', changed, name)
  end
  redis.call('LPUSH', log, ARGV[3] .. ' ' .. ARGV[i + 4])
end
redis.call('LTRIM', log, 0, ARGV[9] - 1)
if #ARGV >= 12 then
  redis.call('HSET', state, 'mark', ARGV[3])
end

if database ~= '' then
  redis.call('HSET', state, 'database', database, 'revision', ARGV[5], 'label', ARGV[11])
end
if not more then
  redis.call('HDEL', state, 'filling')
  redis.pcall('PUBLISH', ARGV[1], 'overrides')
end
return {0}
`)

// PublishedOverrides returns the label of the overrides, as their version, and the database that
// has published them, or none if it was a program without one.
func (s *Source) PublishedOverrides(ctx context.Context) (p Published, err error) {
	var fields []any
	err = s.do(ctx, func(ctx context.Context) (err error) {
		fields, err = s.client.HMGet(ctx, s.overridesPrefix()+"state", "label", "database", "revision").Result()
		return err
	})
	if err != nil {
		return p, err
	}

	// A field that is missing is nil.
	p.Version, _ = fields[0].(string)
	p.Origin.Database, _ = fields[1].(string)
	text, _ := fields[2].(string)
	p.Origin.Revision, _ = strconv.ParseInt(text, 10, 64)
	if p.Origin.check() != nil {
		p.Origin = Origin{} // written by another program
	}
	return p, nil
}

// OverrideChanges implements [policy.OverrideSource].
func (s *Source) OverrideChanges(ctx context.Context, known string) (policy.OverrideChanges, error) {
	epoch, rest, _ := strings.Cut(known, ".")
	text, mark, _ := strings.Cut(rest, ".")
	number, _ := strconv.ParseInt(text, 10, 64) // another version has another epoch
	prefix := s.overridesPrefix()

	var reply []any
	err := s.do(ctx, func(ctx context.Context) (err error) {
		reply, err = overridesSince.Run(ctx, s.client, []string{prefix + "state", prefix + "changed", prefix + "log"},
			epoch, number, mark).Slice()
		return err
	})
	if err != nil {
		return policy.OverrideChanges{}, err
	}

	// What was published stays in force while Redis has lost it, as the policies do.
	if len(reply) == 1 {
		return policy.OverrideChanges{Version: known}, nil
	}

	// Numbers and texts alike are read as texts.
	list := make([]string, len(reply))
	for i, v := range reply {
		list[i] = fmt.Sprint(v)
	}
	c := policy.OverrideChanges{Version: list[0] + "." + list[1] + "." + list[2], Missed: list[3] != "0"}
	if c.Missed {
		readMissed(&c, list[4:], list[3] == "1", number)
		return c, nil
	}

	// An entry that another program has written is a reason to read all of them.
	for _, entry := range slices.Backward(list[4:]) {
		var change policy.OverrideChange
		_, text, _ := strings.Cut(entry, " ")
		if err := json.Unmarshal([]byte(text), &change); err != nil {
			return s.OverrideChanges(ctx, "")
		}
		c.Changes = append(c.Changes, change)
	}
	return c, nil
}

// readMissed reads the fields of the hash of what has changed, which tell nothing unless the
// version that is known is an earlier one of the same history.
func readMissed(c *policy.OverrideChanges, fields []string, sameHistory bool, known int64) {
	for i := 0; i+1 < len(fields); i += 2 {
		at, err := strconv.ParseInt(fields[i+1], 10, 64)
		if sameHistory && err == nil && at <= known {
			c.Same = append(c.Same, fields[i])
		} else {
			c.Stale = append(c.Stale, fields[i])
		}
	}
}

// overridesSince returns the changes after a version.
//
// KEYS: the state, what has changed, and the log. ARGV: the epoch, the number and the mark of the
// version. Reply: the epoch, the number, the mark, 0 and the entries of the log, the newest first;
// or the fields of what has changed, with 1 if the log does not reach back, and with 2 if the
// version is none of this history; or one element if there is nothing to read.
var overridesSince = redis.NewScript(`
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch or redis.call('HEXISTS', KEYS[1], 'filling') == 1 then
  return {''}
end

local number = redis.call('HGET', KEYS[1], 'version') or '0'
local mark = redis.call('HGET', KEYS[1], 'mark') or ''
local behind = tonumber(number) - tonumber(ARGV[2])
local length = redis.call('LLEN', KEYS[3])
local reply = {epoch, number, mark, 2}

-- The change that the version names is in the log, or is the last one that was trimmed. None is
-- that of the beginning.
if epoch == ARGV[1] and behind >= 0 then
  local entry = behind < length and redis.call('LINDEX', KEYS[3], behind)
  if entry and string.sub(entry, 1, #ARGV[3] + 1) == ARGV[3] .. ' ' or ARGV[2] == '0' and behind <= length then
    reply[4] = 0
  elseif not entry then
    reply[4] = 1
  end
end

local list
if reply[4] == 0 then
  list = behind > 0 and redis.call('LRANGE', KEYS[3], 0, behind - 1) or {}
else
  list = redis.call('HGETALL', KEYS[2])
end
for i = 1, #list do
  reply[4 + i] = list[i]
end
return reply
`)

// ReadOverrides implements [policy.OverrideSource].
func (s *Source) ReadOverrides(ctx context.Context, name string, add func([]policy.OverrideChange)) error {
	key, cursor := s.overridesPrefix()+"of:"+name, uint64(0)
	for {
		var fields []string
		err := s.do(ctx, func(ctx context.Context) (err error) {
			fields, cursor, err = s.client.HScan(ctx, key, cursor, "", scanPiece).Result()
			return err
		})
		if err != nil {
			return err
		}

		// The reply has the keys and the texts in turn.
		list := make([]policy.OverrideChange, 0, len(fields)/2)
		for i := 0; i+1 < len(fields); i += 2 {
			list = append(list, policy.OverrideChange{Policy: name, Key: fields[i], Text: fields[i+1]})
		}
		add(list)

		if cursor == 0 {
			return nil
		}
	}
}
