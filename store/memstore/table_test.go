package memstore

import (
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func ignore(int, int) {}

// TestTableKeepsWhatIsPutUntilItIsCut draws hashes that collide and lie at
// both ends of the table, so that runs go round its end.
func TestTableKeepsWhatIsPutUntilItIsCut(t *testing.T) {
	hash := rapid.OneOf(
		rapid.SampledFrom([]uint32{0, 1, math.MaxUint32, math.MaxUint32 - 1, 1 << 31}),
		rapid.Uint32Min(math.MaxUint32-1<<28), rapid.Uint32())
	rapid.Check(t, func(t *rapid.T) {
		// The model knows each slot by the number that it was put with.
		var tab table
		model, long := map[int64]uint32{}, map[int64]ext{}
		next := int64(1)

		// Some slots have more than fits into them, which has to move along with them.
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				h := hash.Draw(t, "hash")
				if rapid.Bool().Draw(t, "long") {
					long[next] = ext{text: strconv.AppendInt(nil, next, 10), rareState: new(rareState)}
				}
				tab.put(entry{hash: h, used: next}, long[next])
				model[next] = h
				next++
			},

			// A slot that is cut leaves no gap in the run of those behind it.
			"cut": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip("empty")
				}
				id := rapid.SampledFrom(keysOf(model)).Draw(t, "id")
				tab.removeSlot(seek(&tab, model[id], id), ignore)
				delete(model, id)
				if tab.sparse() {
					tab.resize(tab.count)
				}
			},

			// After each step: the counts are right, the table is neither too full nor too empty,
			// and every slot is found.
			"": func(t *rapid.T) {
				if tab.count != len(model) {
					t.Fatalf("%d slots counted, want %d", tab.count, len(model))
				}
				if 8*tab.count > 7*len(tab.slots) || len(tab.slots) > 2*minSlots && 4*tab.count < len(tab.slots) {
					t.Fatalf("%d of %d slots are taken", tab.count, len(tab.slots))
				}

				for id, h := range model {
					i := seek(&tab, h, id)
					if i < 0 {
						t.Fatalf("slot %d of hash %d is lost", id, h)
					}

					var got ext
					if tab.exts != nil {
						got = tab.exts[i]
					}
					if want := long[id]; string(got.text) != string(want.text) || got.rareState != want.rareState {
						t.Fatalf("the ext of slot %d is lost", id)
					}
				}
			},
		})
	})
}

func keysOf(m map[int64]uint32) (ids []int64) {
	for id := range int64(1 << 20) {
		if _, ok := m[id]; ok {
			ids = append(ids, id)
		}
		if len(ids) == len(m) {
			break
		}
	}
	return ids
}

func seek(tab *table, hash uint32, id int64) int {
	for i := tab.home(hash); tab.tags[i] != free; i = tab.next(i) {
		if tab.slots[i].used == id {
			return i
		}
	}
	return -1
}

// Rules whose names differ in a number at their end, under one limit, have places of their own.
func TestClassesOfLikeNamesHavePlacesOfTheirOwn(t *testing.T) {
	table := newClassTable(maphash.MakeSeed(), minClassPlaces)
	for _, text := range []string{"100/1h", "3600000/1h", "5/1s", "1000/24h", "7/1m"} {
		l, seen := limit(text), map[uint64]string{}
		for i := range 10 {
			name := fmt.Sprint("api", i)
			at := sample(name, &l) >> table.shift
			if at >= minClassPlaces || seen[at] != "" {
				t.Errorf("%s: %s is at place %d, as %s", text, name, at, seen[at])
			}
			seen[at] = name
		}
	}
}
