package redissource

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/textform"
)

// Origin says from which database a set was published. The zero value stands for none, as of a
// program that has no database, or of a version of this package that wrote no origin.
type Origin struct {
	// Database is the id of the database: 1 to 64 lower-case letters and digits.
	Database string

	// Revision counts the changes of the set in the database, from 0 on.
	Revision int64
}

// Published is what is published, without its policies. The zero value stands for nothing.
type Published struct {
	Version string
	Origin  Origin
}

// OwnerError means that the published set is not that of the database which was to replace it.
// Nothing was changed.
type OwnerError struct {
	Version string // that is published
	Origin  Origin // that it has
}

// Error says whose set is published.
func (e *OwnerError) Error() string {
	if e.Origin.Database == "" {
		return fmt.Sprintf("redissource: the set %q is published without the id of a database",
			textform.Clip(e.Version))
	}
	return fmt.Sprintf("redissource: the set %q is published from the database %q at its revision %d",
		textform.Clip(e.Version), textform.Clip(e.Origin.Database), e.Origin.Revision)
}

// The field "origin" of the snapshot has the version that it is about, the id of the database and
// the revision, with a space between them. A writer that does not know the field changes the
// version and leaves the field, which is of no version then.
var originForm = regexp.MustCompile(`^([^ ]+) ([a-z0-9]{1,64}) ([0-9]{1,15})$`)

// readOrigin reads the field of a version. Anything else than an origin of it is none.
func readOrigin(version, text string) Origin {
	parts := originForm.FindStringSubmatch(text)
	if parts == nil || parts[1] != version {
		return Origin{}
	}
	revision, _ := strconv.ParseInt(parts[3], 10, 64) // it has at most 15 digits
	return Origin{parts[2], revision}
}

// check returns what is wrong with an origin that is to be written, or nil.
func (o Origin) check() error {
	if o == (Origin{}) || originForm.MatchString("v "+o.Database+" "+strconv.FormatInt(o.Revision, 10)) {
		return nil
	}
	return fmt.Errorf("redissource: %q at the revision %d is no origin of a set", textform.Clip(o.Database), o.Revision)
}

// Published returns what is published.
func (s *Source) Published(ctx context.Context) (p Published, err error) {
	var fields []any
	err = s.do(ctx, func(ctx context.Context) (err error) {
		fields, err = s.client.HMGet(ctx, s.snapshot, "version", "origin").Result()
		return err
	})
	if err != nil {
		return p, err
	}

	// A field that is missing is nil, and of no version.
	p.Version, _ = fields[0].(string)
	text, _ := fields[1].(string)
	p.Origin = readOrigin(p.Version, text)
	return p, nil
}

// publish replaces the snapshot if it has the expected version, and if its owner may be replaced:
// the same database at an earlier revision or with the same data, the one that gives way, or none.
//
// KEYS: the snapshot. ARGV: the version expected, "" for none; a digest of the data; the data; the
// channel; the id of the database, "" for none; the revision; the id of the database that gives
// way, "" for none. Reply: the version published afterwards, and 1 if it is the new one, 0 if the
// version was not the expected one, 2 if its owner may not be replaced; then its field "origin".
var publish = redis.NewScript(`
local current = redis.call('HGET', KEYS[1], 'version') or ''
local origin = redis.call('HGET', KEYS[1], 'origin') or ''
if current ~= ARGV[1] then
  return {current, 0, origin}
end

local about, owner, revision = string.match(origin, '^(%S+) ([a-z0-9]+) (%d+)$')
if about == current and #owner <= 64 and #revision <= 15 and owner ~= ARGV[7] then
  local sum = string.match(current, '%.(%x+)$')
  local ahead = tonumber(revision) - tonumber(ARGV[6])
  if owner ~= ARGV[5] or ahead > 0 or ahead == 0 and sum ~= ARGV[2] then
    return {current, 2, origin}
  end
end

local number = tonumber(string.match(current, '^%d+') or '0')
local version = string.format('%d', number + 1) .. '.' .. ARGV[2]
redis.call('HSET', KEYS[1], 'version', version, 'data', ARGV[3])
redis.call('HDEL', KEYS[1], 'origin')
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], 'origin', version .. ' ' .. ARGV[5] .. ' ' .. ARGV[6])
end
redis.pcall('PUBLISH', ARGV[4], version)
return {version, 1, ''}
`)
