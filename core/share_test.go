package core

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestShareText(t *testing.T) {
	for text, want := range map[string]Share{"80%": 8000, "0.5%": 50, "0.50%": 50, "0.01%": 1, "100%": Whole,
		"100.00%": Whole, "12.34%": 1234, "007%": 700} {
		got, err := ParseShare(text)
		if err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if again, err := ParseShare(got.String()); err != nil || again != got {
			t.Errorf("%q is written as %q, which is %d, %v", text, got, again, err)
		}
	}

	for _, text := range []string{"", "%", "80", "0%", "0.00%", "100.01%", "101%", "1000%", "-1%", "+1%", "1.234%",
		"1.%", ".5%", " 5%", "5 %", "5%%", "1e1%", "NaN%", "５%", "1.2.3%", "99999999999999999999%"} {
		if got, err := ParseShare(text); err == nil || got != 0 {
			t.Errorf("%q: %d", text, got)
		}
	}
	if _, err := ParseShare("8\x00%"); fmt.Sprint(err) !=
		`share "8\x00%": it is not a number with at most two decimals and %, such as "80%"` {
		t.Error(err)
	}
}

func TestShareJSON(t *testing.T) {
	type document struct {
		Share Share `json:"share,omitzero"`
	}
	for _, text := range []string{`{}`, `{"share":"0.5%"}`, `{"share":"100%"}`} {
		var d document
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(d); err != nil || string(got) != text {
			t.Errorf("%s became %s, %v", text, got, err)
		}
	}

	d := document{7}
	if err := json.Unmarshal([]byte(`{"share":""}`), &d); err != nil || d.Share != 0 {
		t.Errorf(`"" is %v, %v`, d.Share, err)
	}
	if err := json.Unmarshal([]byte(`{"share":"0%"}`), &d); err == nil {
		t.Error("0% is a share")
	}
}

func TestShareOfIsRoundedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, s := rapid.Int64Range(0, math.MaxInt64).Draw(t, "n"), Share(rapid.IntRange(0, int(Whole)).Draw(t, "share"))
		want := new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(s)))
		want.Add(want, big.NewInt(int64(Whole)-1))
		want.Div(want, big.NewInt(int64(Whole)))
		if got := s.Of(n); !want.IsInt64() || got != want.Int64() {
			t.Fatalf("%v of %d is %d, want %v", s, n, got, want)
		}
	})
}

// The hash is written down, so that other programs may have it too, and a key stays where it is.
func TestShareHas(t *testing.T) {
	place := func(rule, key string) uint64 {
		f := fnv.New64a()
		f.Write([]byte(rule + "\x00" + key))
		h := f.Sum64()
		h ^= h >> 33
		h *= 0xff51afd7ed558ccd
		h ^= h >> 33
		h *= 0xc4ceb9fe1a85ec53
		h ^= h >> 33
		wide := new(big.Int).Mul(new(big.Int).SetUint64(h), big.NewInt(int64(Whole)))
		return wide.Rsh(wide, 64).Uint64()
	}

	counts := map[Share]int{1: 0, 50: 0, 1000: 0, 5000: 0, Whole: 0}
	const keys = 100_000
	for i := range keys {
		key := fmt.Sprint("10.0.", i/256, ".", i%256)
		at := place("api", key)
		for s := range counts {
			if has := s.Has("api", key); has != (at < uint64(s)) {
				t.Fatalf("%v has %q: %v, which stands at %d", s, key, has, at)
			} else if has {
				counts[s]++
			}
		}
	}

	// Five standard deviations of a binomial distribution. The keys are always the same.
	for s, n := range counts {
		p := float64(s) / float64(Whole)
		if off := math.Abs(float64(n) - keys*p); off > 5*math.Sqrt(keys*p*(1-p)) {
			t.Errorf("%v of %d keys are %d", s, keys, n)
		}
	}
	if Share(0).Has("api", "") || !Whole.Has("", "") {
		t.Error("none and all")
	}
	if n := testing.AllocsPerRun(100, func() { Share(1000).Has("api", "10.0.0.1") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
