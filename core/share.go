package core

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/textform"
)

// Share is a part of a whole, in hundredths of a percent: 8000 is 80 %. Its text form is that of
// [ParseShare], such as "80%" or "0.5%". The zero value is no share.
type Share uint16

// Whole is the share that is all.
const Whole Share = 10000

// ParseShare reads the text form of a share: a number above 0 and at most 100 with at most two
// decimals, and "%".
func ParseShare(s string) (Share, error) {
	share, err := parseShare(s)
	if err != nil {
		return 0, fmt.Errorf("share %q: %w", textform.Clip(s), err)
	}
	return share, nil
}

func parseShare(s string) (Share, error) {
	number, found := strings.CutSuffix(s, "%")
	whole, decimals, point := strings.Cut(number, ".")
	if !found || !isDigits(whole, 3) || point && !isDigits(decimals, 2) {
		return 0, errors.New(`it is not a number with at most two decimals and %, such as "80%"`)
	}

	// At most five digits, so there is no error.
	n, _ := strconv.Atoi(whole + (decimals + "00")[:2])
	if n == 0 || n > int(Whole) {
		return 0, errors.New("it is not above 0% and at most 100%")
	}
	return Share(n), nil
}

// isDigits reports whether s is 1 to max digits.
func isDigits(s string, max int) bool {
	return s != "" && len(s) <= max && strings.Trim(s, "0123456789") == ""
}

// String returns the text form.
func (s Share) String() string {
	text := strconv.Itoa(int(s / 100))
	if rest := s % 100; rest > 0 {
		text += strings.TrimRight(fmt.Sprintf(".%02d", rest), "0")
	}
	return text + "%"
}

// MarshalText returns the text form.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the text form; "" is the zero value.
func (s *Share) UnmarshalText(text []byte) (err error) {
	if *s = 0; len(text) > 0 {
		*s, err = ParseShare(string(text))
	}
	return err
}

// Of returns the share of n, which is not negative, rounded up. The share is at most [Whole].
func (s Share) Of(n int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(s))
	lo, carry := bits.Add64(lo, uint64(Whole)-1, 0)
	part, _ := bits.Div64(hi+carry, lo, uint64(Whole))
	return int64(part)
}

// Has reports whether a key of a rule is among the share of the keys. A key that is among a share
// is among each larger one, in every process and at all times: which keys come first follows
// from a hash of the rule and the key (FNV-1a of 64 bits over the rule, a zero byte and the key,
// mixed by the last step of MurmurHash3).
func (s Share) Has(rule, key string) bool {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(rule) {
		h = (h ^ uint64(rule[i])) * prime
	}
	h *= prime // the zero byte
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}

	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	of, _ := bits.Mul64(h, uint64(Whole))
	return of < uint64(s)
}
