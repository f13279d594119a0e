// This file has the prices of tokens.

package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/llmusage"
)

// Price is what a million tokens of a model cost, in any currency.
type Price struct {
	Input  Amount `json:"input" yaml:"input"`
	Output Amount `json:"output" yaml:"output"`

	// CacheRead and CacheWrite are those of the tokens of the input that a cache has or gets; ""
	// means Input.
	CacheRead  Amount `json:"cache_read,omitempty" yaml:"cache_read,omitempty"`
	CacheWrite Amount `json:"cache_write,omitempty" yaml:"cache_write,omitempty"`
}

// Amount is a decimal number as it is written, such as "2.5": below a million, and with at most six
// digits behind the point. It is never a float, which could not hold it.
type Amount string

// MarshalJSON writes a number, or a text if it is none.
func (a Amount) MarshalJSON() ([]byte, error) {
	if _, err := a.micros(); err != nil {
		return json.Marshal(string(a))
	}
	return []byte(a), nil
}

// UnmarshalJSON reads a number or a text. It is not checked; see [Policy.Validate].
func (a *Amount) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, (*string)(a))
	}
	*a = Amount(text)
	return nil
}

// The digits that an Amount may have before and behind the point.
const (
	wholeDigits    = 6
	fractionDigits = 6
)

// micros returns the amount times a million.
func (a Amount) micros() (int64, error) {
	whole, fraction, pointed := strings.Cut(string(a), ".")
	bad := fmt.Errorf("%q is not a price from 0 to 999999, with at most six digits behind the point, such as 2.5",
		textform.Clip(string(a)))
	if pointed && fraction == "" || len(whole) > wholeDigits || len(fraction) > fractionDigits ||
		whole == "" || len(whole) > 1 && whole[0] == '0' {
		return 0, bad
	}

	for _, c := range []byte(whole + fraction) {
		if c < '0' || c > '9' {
			return 0, bad
		}
	}

	// At most twelve digits fit.
	n, _ := strconv.ParseInt(whole+fraction+strings.Repeat("0", fractionDigits-len(fraction)), 10, 64)
	return n, nil
}

// check reports what is wrong with the price of a model.
func (p *Price) check(field, model string, mistake func(field string, err error)) {
	if model == "" || len(model) > llmusage.MaxModel {
		mistake(field, fmt.Errorf(`the name of a model has 1 to %d bytes; "*" is any other`, llmusage.MaxModel))
	} else if err := textform.Check(model, llmusage.MaxModel); err != nil {
		mistake(field, err)
	}

	for _, f := range []struct {
		name     string
		amount   Amount
		optional bool
	}{{".input", p.Input, false}, {".output", p.Output, false}, {".cache_read", p.CacheRead, true},
		{".cache_write", p.CacheWrite, true}} {
		if f.amount == "" {
			if !f.optional {
				mistake(field+f.name, errors.New("it is missing; write what a million tokens cost, such as 2.5, or 0"))
			}
			continue
		}
		_, err := f.amount.micros()
		mistake(field+f.name, err)
	}
}

// tariff is a valid Price in millionths of a currency for a million tokens.
type tariff struct{ input, output, cacheRead, cacheWrite uint64 }

// tariff returns the tariff of a valid price.
func (p *Price) tariff() tariff {
	of := func(a Amount) uint64 {
		n, _ := a.micros()
		return uint64(n)
	}
	t := tariff{input: of(p.Input), output: of(p.Output)}

	t.cacheRead, t.cacheWrite = t.input, t.input
	if p.CacheRead != "" {
		t.cacheRead = of(p.CacheRead)
	}
	if p.CacheWrite != "" {
		t.cacheWrite = of(p.CacheWrite)
	}
	return t
}

// units returns the price of the tokens in millionths of the currency, rounded up and at most
// maxUnits.
func (t tariff) units(u llmusage.Usage) int64 {
	// The input has what caches have, and a total may have more than the input and the output.
	cached := u.CacheRead + u.CacheWrite
	rest := max(0, u.Total-u.Input-u.Output)

	// The sum has up to 128 bits.
	var hi, lo, carry uint64
	for _, part := range [...]struct {
		tokens int64
		rate   uint64
	}{{max(0, u.Input-cached), t.input}, {u.CacheRead, t.cacheRead}, {u.CacheWrite, t.cacheWrite},
		{u.Output, t.output}, {rest, t.output}} {
		h, l := bits.Mul64(uint64(part.tokens), part.rate)
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry
	}

	// A rate is for a million tokens.
	const million = 1_000_000
	lo, carry = bits.Add64(lo, million-1, 0)
	if hi += carry; hi >= million {
		return maxUnits
	}
	n, _ := bits.Div64(hi, lo, million)
	return int64(min(n, maxUnits))
}
