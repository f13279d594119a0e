package topkeys

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func TestSummaryJSON(t *testing.T) {
	sum := Summary{From: noon, To: noon.Add(time.Minute), Total: 9, Floor: 1, Keys: []Key{
		{"10.0.0.1", 5, 0, noon}, {"\xff\x00<script>", 3, 1, noon}, {"", 1, 0, noon}}}

	// A key that is no text is written as bytes, and one that is empty as a text.
	const want = `{"from":"2026-05-04T12:00:00Z","to":"2026-05-04T12:01:00Z","total":9,"floor":1,"keys":[` +
		`{"key":"10.0.0.1","count":5,"since":"2026-05-04T12:00:00Z"},` +
		`{"bytes":"/wA8c2NyaXB0Pg==","count":3,"error":1,"since":"2026-05-04T12:00:00Z"},` +
		`{"key":"","count":1,"since":"2026-05-04T12:00:00Z"}]}`

	text, err := json.Marshal(sum)
	if err != nil || string(text) != want {
		t.Fatalf("%v\n%s, want\n%s", err, text, want)
	}

	var back Summary
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, sum) {
		t.Errorf("read back as %+v: %v", back, err)
	}
}

func TestSummaryJSONIsBounded(t *testing.T) {
	s := sketch(t, Options{Top: 20})
	defer s.stop()

	// Characters that JSON escapes with six bytes, long keys that are shortened, and keys just
	// below that length.
	for _, piece := range []string{"\x00", "<", "\u2028", "\xff", "é", "\""} {
		for i := range 10 {
			s.Add(strings.Repeat(piece, 10_000) + strconv.Itoa(i))
			s.Add(strings.Repeat(piece, maxText/len(piece)-1) + strconv.Itoa(i))
		}
	}

	text, err := json.Marshal(s.Summary())
	if err != nil || len(text) > 20*1024 {
		t.Errorf("20 keys take %d bytes: %v", len(text), err)
	}

	var back Summary
	if err := json.Unmarshal(text, &back); err != nil || len(back.Keys) != 20 {
		t.Errorf("read back as %d keys: %v", len(back.Keys), err)
	}
}

func TestSummaryJSONErrors(t *testing.T) {
	many := strings.Repeat(`{"key":"a","count":1,"since":"2026-05-04T12:00:00Z"},`, MaxTop)
	for _, row := range []struct{ text, want string }{
		// A key is a text or bytes, and exactly one of the two.
		{`{"keys":[{"count":1}]}`, `topkeys: a key has not one of "key" and "bytes"`},
		{`{"keys":[{"key":"a","bytes":"YQ==","count":1}]}`, `topkeys: a key has not one of "key" and "bytes"`},
		// A count is at least one more than its error.
		{`{"keys":[{"key":"a","count":0}]}`, "topkeys: a count of 0 with an error of 0 is not one"},
		{`{"keys":[{"key":"a","count":2,"error":2}]}`, "topkeys: a count of 2 with an error of 2 is not one"},
		{`{"keys":[{"key":"a","count":2,"error":-1}]}`, "topkeys: a count of 2 with an error of -1 is not one"},
		{`{"keys":[{"key":"a","count":9223372036854775807}]}`,
			"topkeys: a count of 9223372036854775807 with an error of 0 is not one"},
		// Sizes and numbers that no summary has.
		{`{"keys":[{"key":"` + strings.Repeat("a", 81) + `","count":1}]}`,
			"topkeys: a key of 81 bytes is longer than 80"},
		{`{"keys":[{"key":"a","count":1},{"key":"a","count":1}]}`, `topkeys: the key "a" occurs twice`},
		{`{"total":-1}`, "topkeys: the total -1 is not within 0 to 8796093022207"},
		{`{"floor":9223372036854775807}`, "topkeys: the floor 9223372036854775807 is not within 0 to 8796093022207"},
		{`{"keys":[` + many + `{"key":"b","count":1}]}`, "topkeys: 1001 keys are more than 1000"},
	} {
		var s Summary

		if err := json.Unmarshal([]byte(row.text), &s); err == nil || err.Error() != row.want {
			t.Errorf("%.80s: %v, want %s", row.text, err, row.want)
		}
	}
}

// The merged summaries of four instances keep the bounds for the sums.
func TestMerge(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 20 {
		exact := map[string]int64{}
		var parts []Summary
		for range 4 {
			s := sketch(t, Options{Top: 20})

			// Broader from round to round, so that the lists of the instances agree less and less.
			for range 3_000 {
				key := strconv.Itoa(int(random.ExpFloat64() * float64(20+10*round)))
				s.Add(key)
				exact[key]++
			}

			parts = append(parts, s.Summary())
			s.stop()
		}

		sum := Merge(30, parts...)
		checkBounds(t, sum, exact)

		// The order of the instances means nothing.
		parts[0], parts[3] = parts[3], parts[0]
		if other := Merge(30, parts...); !reflect.DeepEqual(sum, other) {
			t.Errorf("in another order %v, want %v", other, sum)
		}
		if len(sum.Keys) > 30 {
			t.Errorf("%d keys, want at most 30", len(sum.Keys))
		}
	}
}

func TestMergeExact(t *testing.T) {
	a := Summary{From: noon, To: noon.Add(2 * time.Minute), Total: 20, Floor: 2,
		Keys: []Key{{"x", 10, 1, noon}, {"y", 5, 0, noon}}}
	b := Summary{From: noon.Add(-time.Minute), To: noon.Add(time.Minute), Total: 9, Floor: 1,
		Keys: []Key{{"y", 4, 0, noon.Add(-time.Hour)}, {"z", 3, 0, noon}}}
	want := Summary{From: noon.Add(-time.Minute), To: noon.Add(2 * time.Minute), Total: 29, Floor: 5,
		Keys: []Key{{"x", 11, 2, noon}, {"y", 9, 0, noon.Add(-time.Hour)}}}
	if got := Merge(2, a, b, Summary{}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := Merge(2); !reflect.DeepEqual(got, Summary{}) {
		t.Errorf("of none %+v", got)
	}
}

func TestShorten(t *testing.T) {
	long := strings.Repeat("k", 10_000)
	for _, row := range []struct{ name, key, want string }{
		{"an address", "203.0.113.7", "203.0.113.7"},
		// Up to 80 bytes a key stays as it is. Beyond, the digest of the whole follows its
		// beginning.
		{"the longest that is kept", long[:80], long[:80]},
		{"one byte more", long[:81], long[:48] + "…sha256:Fj9qN0CrEbREMt6L0Qn_6A"},
		// The beginning ends between runes, and is cut anywhere if there are none.
		{"a rune is not cut", strings.Repeat("é", 100), strings.Repeat("é", 24) + "…sha256:"},
		{"a rune at an odd place", "x" + strings.Repeat("é", 100), "x" + strings.Repeat("é", 23) + "…sha256:"},
		{"bytes that are no runes", strings.Repeat("\x80", 100), strings.Repeat("\x80", 44) + "…sha256:"},
	} {
		got := Shorten(row.key)
		if !strings.HasPrefix(got, row.want) || len(got) > maxText {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}

	// A shortened key that a client sends is shortened again, so that no client can imitate one.
	short := Shorten(long)
	if again := Shorten(short); again == short || len(again) > maxText {
		t.Errorf("a key that looks shortened stays %q", again)
	}

	if Shorten(long+"a") == Shorten(long+"b") {
		t.Error("two long keys get one text")
	}
}

func FuzzShorten(f *testing.F) {
	f.Add("a", "b")
	f.Add(strings.Repeat("é", 41), strings.Repeat("é", 42))
	f.Add(Shorten(strings.Repeat("x", 100)), strings.Repeat("x", 100))
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := Shorten(a), Shorten(b)
		if len(x) > maxText || (x == y) != (a == b) || utf8.ValidString(a) && !utf8.ValidString(x) {
			t.Errorf("%q and %q become %q and %q", a, b, x, y)
		}
	})
}

func FuzzSummaryJSON(f *testing.F) {
	f.Add([]byte(`{"total":9,"floor":1,"keys":[{"key":"a","count":5,"error":2,"since":"2026-05-04T12:00:00Z"}]}`))
	f.Add([]byte(`{"keys":[{"bytes":"/wA=","count":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s Summary

		// Only what is read without an error has to keep the promises.
		if json.Unmarshal(text, &s) != nil {
			return
		}

		for _, k := range Merge(10, s, s).Keys {
			if k.Least() < 1 || k.Error < 0 {
				t.Errorf("%s merges to %+v", text, k)
			}
		}

		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}

		var back Summary
		if err := json.Unmarshal(out, &back); err != nil {
			t.Errorf("%s is written as %s: %v", text, out, err)
		}
	})
}

func FuzzSketch(f *testing.F) {
	f.Add([]byte("the keys of a fuzzer are bytes"), uint8(1))
	f.Fuzz(func(t *testing.T, keys []byte, top uint8) {
		s := sketch(t, Options{Top: max(1, int(top))})
		defer s.stop()
		exact := map[string]int64{}

		// A zero byte ends all windows.
		for _, b := range keys {
			if b == 0 {
				s.rotate()

				exact = map[string]int64{}
				for range DefaultWindows {
					s.rotate()
				}
				continue
			}
			s.Add(string(b))
			exact[string(b)]++
		}

		checkBounds(t, s.Summary(), exact)
	})
}
