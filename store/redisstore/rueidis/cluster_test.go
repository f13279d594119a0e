package rueidisstore

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/test/redistest"
)

// The replies are those of a script, as rueidis makes none by itself.
func TestTableOfSlots(t *testing.T) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redistest.Addr(t)}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	// read returns the table that the reply of a script is.
	read := func(script string) (*table, error) {
		ranges, err := c.Do(t.Context(), c.B().Eval().Script("return "+script).Numkeys(0).Build()).ToArray()
		if err != nil {
			t.Fatal(err)
		}
		return readTable(ranges, "own")
	}

	// The first node is the master. One that does not know its name has that of the server asked.
	got, err := read("{{0, 1, {'a', 1, 'id'}, {'replica', 2}}, {16383, 16383, {'', 3}}}")
	if err != nil || got.masters[0] != "a:1" || got.masters[1] != "a:1" || got.masters[2] != "" ||
		got.masters[16383] != "own:3" {
		t.Errorf("%q, %q, %q and %q, %v", got.masters[0], got.masters[1], got.masters[2], got.masters[16383], err)
	}

	for _, wrong := range []string{
		"{1}", "{{0, 1}}", "{{0, 1, 'a'}}", "{{0, 1, {'a'}}}", "{{-1, 1, {'a', 1}}}", "{{0, 16384, {'a', 1}}}",
	} {
		if got, err := read(wrong); !errors.Is(err, errTable) {
			t.Errorf("%s is %v, %v", wrong, got, err)
		}
	}
}

// Servers say which slot a key has.
func TestSlotIsThatOfTheServer(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: redistest.Cluster(t, 3)[0].Addr})
	defer c.Close()
	keys := []string{"", "a", "{a}b", "p:{10.0.0.1}:r:g", "a{}b", "{}{b}", "a{{b}}", "{a", "}a{", "\xff{\x00}"}
	for _, key := range keys {
		want, err := c.ClusterKeySlot(t.Context(), key).Result()
		if got := slotOf(key); err != nil || got != int(want) {
			t.Errorf("%q has slot %d, want %d, %v", key, got, want, err)
		}
	}
}
