package redissource

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/policy"
)

// publish replaces the snapshot if it has the expected version.
//
// KEYS: the snapshot. ARGV: the version expected, "" for none; a digest of the
// data; the data; the channel. Reply: the version published afterwards, and 1 if
// it is the new one, 0 if the version was not the expected one.
var publish = redis.NewScript(`
local current = redis.call('HGET', KEYS[1], 'version') or ''
if current ~= ARGV[1] then
  return {current, 0}
end
local number = tonumber(string.match(current, '^%d+') or '0')
local version = string.format('%d', number + 1) .. '.' .. ARGV[2]
redis.call('HSET', KEYS[1], 'version', version, 'data', ARGV[3])
redis.pcall('PUBLISH', ARGV[4], version)
return {version, 1}
`)

// ConflictError means that the published version is not the expected one.
type ConflictError struct {
	Expected string // "" for none
	Current  string // "" if none is published
}

// Error names both versions.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("redissource: the version published is %q and not %q", e.Current, e.Expected)
}

// Publish replaces the expected version, "" for none, by a valid set and notifies
// the followers. It returns the new version: a number that counts up and a digest
// of the policies. If another version is published, Publish changes nothing and
// returns a [*ConflictError]. Publishing an earlier set again makes a new version
// too.
//
// After any other error the set may or may not have been published. Publishing it
// again with the same expected version is safe.
func (s *Source) Publish(ctx context.Context, set policy.Set, expected string) (version string, err error) {
	data, err := policy.EncodeJSON(set)
	if err != nil {
		return "", err
	}

	sum := digest(data)
	var fields []any
	err = s.do(ctx, func(ctx context.Context) (err error) {
		fields, err = publish.Run(ctx, s.client, []string{s.snapshot}, expected, sum, data, s.channel).Slice()
		return err
	})
	if err != nil {
		return "", err
	}

	// A call that the client has repeated finds the version that it has published itself. The
	// number and the digest say so: another set that follows the expected one has another digest.
	current, _ := fields[0].(string)
	if fields[1] == int64(1) || current != "" && current == successor(expected, sum) {
		return current, nil
	}
	return "", &ConflictError{Expected: expected, Current: current}
}

// successor returns the version that follows version if it has the digest sum. If
// the script finds it already published, the client has repeated a call whose
// reply was late. It returns "" if version is not one that Publish returns.
func successor(version, sum string) string {
	text, _, _ := strings.Cut(version, ".")
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil && version != "" {
		return ""
	}
	return strconv.FormatInt(number+1, 10) + "." + sum
}
