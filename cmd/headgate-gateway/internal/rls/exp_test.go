package rls

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
)

func BenchmarkExp(b *testing.B) {
	dir := b.TempDir()
	os.WriteFile(filepath.Join(dir, "b.yaml"),
		[]byte("domain: bench\ndescriptors:\n- key: user\n  rate_limit: {unit: hour, requests_per_unit: 100000000}\n"),
		0o600)
	e, err := engine.Open(context.Background(),
		engine.Options{Apps: []string{"none"}, Source: engine.Fixed(nil), Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(e, Options{Config: dir})
	if err != nil {
		b.Fatal(err)
	}

	// 1000 users, so that no count stays in a cache of the processor for long.
	var in [][]byte
	for i := range 1000 {
		x, _ := proto.Marshal(request("bench", fmt.Sprintf("user=user-%d", i)))
		in = append(in, x)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	// What the network does is left out: the bytes of a request become those of an answer.
	b.ReportAllocs()
	for i := range b.N {
		r := new(pb.RateLimitRequest)
		if err := proto.Unmarshal(in[i%1000], r); err != nil {
			b.Fatal(err)
		}
		a, err := s.ShouldRateLimit(ctx, r)
		if err != nil {
			b.Fatal(err)
		}
		out, _ := proto.Marshal(a)
		if i == 0 {
			b.Log(len(out), a)
		}
	}
}
