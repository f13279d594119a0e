package spoe

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

type policyLimit = core.Limit

func openEngine(t testing.TB) *engine.Engine {
	t.Helper()
	e, err := engine.Open(t.Context(),
		engine.Options{Apps: []string{"shop"}, Source: engine.Fixed(policy.Set{shop("api", "1/1h")}), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// The lengths are those of the table in HAProxy's SPOE.txt.
func TestVarintIsThatOfHAProxy(t *testing.T) {
	// The first and the last number of each length.
	for v, want := range map[uint64]int{0: 1, 239: 1, 240: 2, 2287: 2, 2288: 3, 264431: 3, 264432: 4, 33818863: 4,
		33818864: 5, 4328786159: 5, 4328786160: 6, math.MaxUint64: 10} {
		b := appendVarint(nil, v)
		p := parser{rest: string(b)}
		if got := p.varint(); got != v || p.err != nil || p.rest != "" || len(b) != want {
			t.Errorf("%d became %d in %d bytes, want %d; %v", v, got, len(b), want, p.err)
		}
	}

	if b := appendVarint(nil, 1234); !bytes.Equal(b, []byte{0xf2, 0x3e}) { // 240 + 2 + 62<<4
		t.Errorf("1234 is % x", b)
	}

	for _, bad := range []string{"\xff", "\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00"} {
		if p := (parser{rest: bad}); p.varint() != 0 || p.err == nil {
			t.Errorf("% x is a number", bad)
		}
	}
}

// Whatever a peer sends, the answer is a frame of at most the agreed size, and nothing panics.
func FuzzFrames(f *testing.F) {
	f.Add(helloFrame("supported-versions", "2.0", "max-frame-size", uint32(256), "capabilities",
		"pipelining")[lengthBytes:])
	for _, m := range []message{about("192.0.2.1"), about("2001:db8::1"), {name: "other"},
		{src: "::1", method: "GET", path: "/a%2fb", app: "shop", user: "u", plan: "p", more: 3}} {
		f.Add(notifyFrame(1<<40, 9, m, m)[lengthBytes:])
	}

	s := open(f, quiet, nil, shop("api", "5/1h"))
	f.Fuzz(func(t *testing.T, data []byte) {
		fr, err := parseFrame(string(data))
		if err != nil {
			return
		}

		if h, err := readHello(fr); err == nil && (h.maxFrame < minFrame || h.maxFrame > maxFrame) {
			t.Errorf("frames of %d bytes", h.maxFrame)
		}
		b := s.answer(context.Background(), fr, minFrame)
		back, err := readFrame(bytes.NewReader(b), minFrame)
		if err != nil || back.kind != ack || back.stream != fr.stream || back.frame != fr.frame {
			t.Errorf("answered by %+v, %v", back, err)
		}
	})
}
