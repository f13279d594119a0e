package redissource

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/policy"
)

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
// returns a [*ConflictError], and if the expected one has an [Origin], an [*OwnerError].
// Publishing an earlier set again makes a new version too.
//
// After any other error the set may or may not have been published. Publishing it
// again with the same expected version is safe.
func (s *Source) Publish(ctx context.Context, set policy.Set, expected string) (version string, err error) {
	return s.PublishFrom(ctx, set, expected, Origin{}, "")
}

// PublishFrom is [Source.Publish] for a program whose policies are in a database. The set carries
// its origin. It replaces a set without an origin, one of the same database, and one of the
// database instead, unless that is "". Any other set stays, and so does one of a later revision
// of the same database, and another set of the same revision: a copy of the database has
// published it. The error is an [*OwnerError] then. Redis decides all of it in one step.
//
// A copy that is behind cannot be told by its revision once it has counted as far. So the program
// expects only a version that it has published itself, or was about to publish, see [Source.Next].
func (s *Source) PublishFrom(
	ctx context.Context, set policy.Set, expected string, from Origin, instead string,
) (version string, err error) {
	if err := from.check(); err != nil {
		return "", err
	}
	data, err := policy.EncodeJSON(set)
	if err != nil {
		return "", err
	}

	sum := digest(data)
	var fields []any
	err = s.do(ctx, func(ctx context.Context) (err error) {
		fields, err = publish.Run(ctx, s.client, []string{s.snapshot}, expected, sum, data, s.channel,
			from.Database, from.Revision, instead).Slice()
		return err
	})
	if err != nil {
		return "", err
	}

	// A call that the client has repeated finds the version that it has published itself. The
	// number and the digest say so: another set that follows the expected one has another digest.
	current, _ := fields[0].(string)
	text, _ := fields[2].(string)
	origin := readOrigin(current, text)
	switch {
	case fields[1] == int64(1), current != "" && current == successor(expected, sum) && origin == from:
		return current, nil
	case fields[1] == int64(2):
		return "", &OwnerError{current, origin}
	}
	return "", &ConflictError{Expected: expected, Current: current}
}

// Next returns the version under which PublishFrom publishes the set if it replaces the expected
// version. A program that stores it before knows its own set after a crash in between. It is "" if
// the expected version is not one that Publish returns.
func (s *Source) Next(set policy.Set, expected string) (version string, err error) {
	data, err := policy.EncodeJSON(set)
	if err != nil {
		return "", err
	}
	return successor(expected, digest(data)), nil
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
