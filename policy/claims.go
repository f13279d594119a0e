// This file has the conditions of a match on the claims of a token.

package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// claimed is a request that knows its claims, for an index that is not of [Compile].
type claimed interface{ Claims() map[string]any }

// claimsOf returns the claims of a request that knows them.
func claimsOf(r core.Request) map[string]any {
	if r, ok := r.(claimed); ok {
		return r.Claims()
	}
	return nil
}

// claimCondition is one of Match.Claims.
type claimCondition struct {
	name   string
	values Values
}

// claim returns the claim of a request that has the name, or nil. It asks for the claims once.
func (s *search) claim(name string) any {
	if f := &s.facts; !f.claimed {
		f.claimed, f.claims = true, s.index.claims(s.request)
	}
	return claimAt(s.facts.claims, name)
}

// claimAt returns the claim of the name, which may be within others: a dot in it then stands
// between the name of an object and that of its part. A name that itself has dots comes first.
func claimAt(claims map[string]any, name string) any {
	if v, ok := claims[name]; ok {
		return v
	}

	// The longest name of an object comes first.
	for dot := len(name) - 1; dot > 0; dot-- {
		if name[dot] != '.' {
			continue
		}
		if within, ok := claims[name[:dot]].(map[string]any); ok {
			return claimAt(within, name[dot+1:])
		}
	}
	return nil
}

// met reports whether a claim has one of the values.
func (c *claimCondition) met(claim any) bool {
	if c.values.isAny() {
		return claim != nil
	}

	// These are the types of a decoder of JSON.
	switch v := claim.(type) {
	case nil, map[string]any:
		return false
	case string:
		return slices.Contains(c.values, v)
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return c.metBy(one) })
	}

	// A program may have lists of another type, such as []string.
	if list := reflect.ValueOf(claim); list.Kind() == reflect.Slice {
		for i := range list.Len() {
			if c.metBy(list.Index(i).Interface()) {
				return true
			}
		}
		return false
	}
	return c.metBy(claim)
}

// metBy reports whether a text, a number or a boolean is one of the values.
func (c *claimCondition) metBy(claim any) bool {
	if n, ok := claim.(json.Number); ok {
		return c.hasNumber(shortest(string(n)))
	}

	var room [32]byte
	text := room[:0]
	switch v := reflect.ValueOf(claim); v.Kind() {
	case reflect.String:
		return slices.Contains(c.values, v.String())
	case reflect.Bool:
		text = strconv.AppendBool(text, v.Bool())
	case reflect.Float32, reflect.Float64:
		text = strconv.AppendFloat(text, v.Float(), 'f', -1, v.Type().Bits())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		text = strconv.AppendInt(text, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		text = strconv.AppendUint(text, v.Uint(), 10)
	default:
		return false
	}
	return slices.ContainsFunc(c.values, func(value string) bool {
		return value == string(text) || shortest(value) == string(text)
	})
}

// hasNumber reports whether a number is one of the values, however those are written.
func (c *claimCondition) hasNumber(number string) bool {
	return slices.ContainsFunc(c.values, func(value string) bool { return shortest(value) == number })
}

// shortest returns a number as the text that it has as a float64, so that 5.0 is 5. One without an
// exponent keeps all of its digits, and a text that is no number stays as it is.
func shortest(number string) string {
	if !strings.ContainsAny(number, ".eE") {
		return number
	}
	if _, err := strconv.ParseFloat(number, 64); err != nil {
		return number
	}
	if strings.ContainsAny(number, "eE") {
		if f, err := strconv.ParseFloat(number, 64); err == nil {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return number
	}
	if strings.Contains(number, ".") {
		return strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return number
}

// checkClaims checks Match.Claims.
func checkClaims(claims map[string]Values) error {
	return checkTable(claims, "claims", asIs, checkTableName("claim"))
}

// checkBound returns an error if the policy needs claims and the program has none.
func checkBound(p *Policy, b *Bindings) error {
	if len(p.Match.Claims) > 0 && b.Claims == nil {
		return errors.New("claims cannot be used here: the program does not set Bindings.Claims")
	}
	return nil
}

// doubtClaims finds names in other notations.
func doubtClaims(claims map[string]Values) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		if strings.HasPrefix(name, "$") || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") ||
			strings.Contains(name, "..") || strings.ContainsAny(name, "[]") {
			errs = append(errs, fmt.Errorf("%q is no name of a claim, nor names with dots between them",
				textform.Clip(name)))
		}
	}
	return errors.Join(errs...)
}
