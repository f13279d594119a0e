package redisstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrPermission means that the Redis user of the client may not do what the
// store needs. The text of the error has the line that grants it.
var ErrPermission = errors.New("no permission")

// ErrCredentials means that Redis does not accept the user or the password of
// the client.
var ErrCredentials = errors.New("wrong user or password")

// explain gives an error that only who runs the server can mend its name.
func (s *Store) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case redis.IsAuthError(err):
		return fmt.Errorf("redisstore: %w: %w", ErrCredentials, err)
	case forbids(err):
		return fmt.Errorf("redisstore: %w: %w; %s", ErrPermission, err, s.remedy())
	}
	return err
}

// forbids reports whether the server, or a script on it, denies a permission.
// Inside of scripts Redis 7.0 has no code for that.
func forbids(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) &&
		(strings.Contains(reply.Error(), "NOPERM") || strings.Contains(reply.Error(), "The user executing the script can't"))
}

// remedy is a command line that makes a user who may do what the store needs and
// nothing else. It is about the user of the client, unless that is the default
// one, by which administrators come in too.
func (s *Store) remedy() string {
	user, secret := userOf(s.client), ""
	if user == "" || user == "default" {
		user, secret = "headgate", "on >PASSWORD "
	}
	return "a user for limits alone is made by: ACL SETUSER " + argument(user) + " " + secret +
		"resetkeys " + argument("~"+pattern(s.prefix)) +
		" resetchannels -@all +eval +evalsha +get +mget +exists +set +del +time +pttl +pexpire"
}

// userOf returns the name by which the client logs in, or "" if it has none or
// finds it out later.
func userOf(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		if o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil {
			return o.Username
		}
	case *redis.ClusterClient:
		o := c.Options()
		if o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil {
			return o.Username
		}
	case *redis.Ring:
		o := c.Options()
		if o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil {
			return o.Username
		}
	}
	return ""
}

// pattern is what the names of keys with the prefix match, and hardly any else:
// a pattern of an ACL has no way to hold white space or a zero byte but as "any".
func pattern(prefix string) string {
	var b strings.Builder
	for i := range len(prefix) {
		switch c := prefix[i]; c {
		case '*', '?', '[', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case 0, ' ', '\t', '\n', '\v', '\f', '\r':
			b.WriteByte('?')
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + "*"
}

// argument is how a text stands in a line for redis-cli or in a file of users.
func argument(text string) string {
	var b strings.Builder
	quoted := text == ""
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"', c == '\\':
			quoted = true
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ', c > '~':
			quoted = true
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			quoted = quoted || c == ' ' || c == '\''
			b.WriteByte(c)
		}
	}
	if quoted {
		return `"` + b.String() + `"`
	}
	return b.String()
}
