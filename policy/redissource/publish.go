package redissource

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/policy"
	"github.com/redis/go-redis/v9"
)

// publish puts a snapshot in the place of the version that is expected.
//
// KEYS: the snapshot. ARGV: the version expected, "" for none; a digest of the
// data; the data; the channel. Reply: the version in force afterwards, and 1 if
// it is the new one, 0 if another was in its place.
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

// ConflictError means that another version is published than was expected.
type ConflictError struct {
	Expected string // "" for none
	Current  string // "" if none is published
}

// Error names both versions.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("redissource: the version published is %q and not %q", e.Current, e.Expected)
}

// Publish puts a set that is valid in the place of the version that is
// expected, "" for none, and tells those who follow. It returns the new version:
// a number that counts up and a digest of the policies. If another version is
// there, nothing changes and the error is a [*ConflictError]. To publish what
// was before is a new version too.
//
// After any other error the set may or may not have been published. To publish
// it once more with the same expectation is safe.
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
	current, _ := fields[0].(string)
	if fields[1] == int64(1) || current == successor(expected, sum) {
		return current, nil
	}
	return "", &ConflictError{Expected: expected, Current: current}
}

// successor is the version that follows another. If it is there although it was
// not expected, the client has repeated a call whose reply was late.
func successor(version, sum string) string {
	text, _, _ := strings.Cut(version, ".")
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil && version != "" {
		return ""
	}
	return strconv.FormatInt(number+1, 10) + "." + sum
}
