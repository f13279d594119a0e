package policy_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

// many returns a thousand policies for as many paths.
func many(t testing.TB) (list []policy.Policy) {
	for i := range 1000 {
		p := valid(t, fmt.Sprintf("p%d", i))
		p.Match.Path = fmt.Sprintf("/v1/service%d/items/{id}", i)
		p.Limit = limit(t, "1000000000/1s")
		list = append(list, p)
	}
	return list
}

func admit(b *testing.B, l *limiter.Limiter) {
	r := get("/v1/service600/items/77")
	b.ReportAllocs()
	for b.Loop() {
		a := l.Admit(r)
		if len(a.Result().Violated()) > 0 {
			b.Fatal("refused")
		}
		a.Done(200)
	}
}

func BenchmarkAdmitUnderAThousand(b *testing.B) {
	l := newLimiter(b)
	compiled, err := policy.Compile("shop", many(b), policy.Bindings{})
	if err != nil {
		b.Fatal(err)
	}
	if err := l.SetRules(compiled.Rules()); err != nil {
		b.Fatal(err)
	}
	admit(b, l)
}

func BenchmarkAdmitUnderAThousandIndexed(b *testing.B) {
	l := newLimiter(b)
	compiled, err := policy.Compile("shop", many(b), policy.Bindings{})
	if err != nil {
		b.Fatal(err)
	}
	if err := l.SetSelectedRules(compiled.Selected()); err != nil {
		b.Fatal(err)
	}
	admit(b, l)
}

func BenchmarkAdmitUnderOne(b *testing.B) {
	l := newLimiter(b)
	compiled, err := policy.Compile("shop", []policy.Policy{valid(b, "a")}, policy.Bindings{})
	if err != nil {
		b.Fatal(err)
	}
	rules := compiled.Rules()
	rules[0].Limit = limit(b, "1000000000/1s")
	if err := l.SetRules(rules); err != nil {
		b.Fatal(err)
	}
	admit(b, l)
}
