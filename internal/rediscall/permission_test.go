package rediscall_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
)

// reply is an error that a server answers.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// The texts are those of the servers, word for word: a command and a key outside of
// scripts, and then inside of one. A script's error says where it occurred, too.
func TestForbidsKnowsTheDenialsOfEveryServer(t *testing.T) {
	const at = " script: 5d20220c87520c182d597a6d498f20d511dac259, on @user_script:1."
	rows := map[string][]reply{
		"Redis 7.0": {
			"NOPERM this user has no permissions to run the 'set' command",
			"NOPERM this user has no permissions to access one of the keys used as arguments",
			"ERR The user executing the script can't run this command or subcommand" + at,
			"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments" + at,
		},
		"Redis 7.4, Redis 8.0 and Valkey 8.0": {
			"NOPERM User svc has no permissions to run the 'set' command",
			"NOPERM No permissions to access a key",
			"ERR ACL failure in script: User svc has no permissions to run the 'pttl' command" + at,
			"ERR ACL failure in script: No permissions to access a key" + at,
		},
	}

	// Clients wrap errors.
	for server, texts := range rows {
		for _, text := range texts {
			if !rediscall.Forbids(text) || !rediscall.Forbids(fmt.Errorf("a call: %w", text)) {
				t.Errorf("%s: not taken for a denial: %s", server, text)
			}
		}
	}

	// Other errors of a server do not say that a permission is missing, and an error that is not a
	// server's proves nothing.
	for _, err := range []error{nil, reply("ERR unknown command"),
		reply("WRONGPASS invalid username-password pair or user is disabled."),
		fmt.Errorf("NOPERM, but not by a server")} {
		if rediscall.Forbids(err) {
			t.Errorf("taken for a denial: %v", err)
		}
	}
}

// Every permission that a remedy grants is tried in a script, or is of a command that scripts
// cannot run.
func TestEveryPermissionCanBeTried(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	alone := strings.Fields("eval evalsha info subscribe ping multi exec")

	tried := rediscall.OnKeys()

	for _, word := range strings.Fields(rediscall.Remedy(client, "x:")) {
		name, ok := strings.CutPrefix(word, "+")
		if ok && slices.Contains(tried, name) == slices.Contains(alone, name) {
			t.Errorf("%s is not one of those that are tried and those that are not", name)
		}
	}
	if len(tried) != 27 {
		t.Errorf("%d are tried: %q", len(tried), tried)
	}
}
