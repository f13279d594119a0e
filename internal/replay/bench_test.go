package replay

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/accesslog"
)

// BenchmarkReplay replays lines of a combined log, of 50,000 callers, under one policy.
func BenchmarkReplay(b *testing.B) {
	var log strings.Builder
	rnd := rand.New(rand.NewPCG(1, 2))
	at := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	const lines = 200_000
	for i := range lines {
		n := rnd.IntN(50_000)
		fmt.Fprintf(&log, "10.1.%d.%d - - [%s] \"GET /api/items/%d?page=%d HTTP/1.1\" 200 1234 "+
			"\"https://shop.example/list\" "+
			"\"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36\"\n",
			n/256, n%256, at.Add(time.Duration(i/100)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), n, i%7)
	}

	set := setOf(b, "- {name: api, apps: [a], limit: 20/1m, key: ip}")

	b.SetBytes(int64(log.Len() / lines))
	b.ResetTimer()
	for done := 0; done < b.N; {
		in, err := accesslog.New("log", strings.NewReader(log.String()), accesslog.Options{Reorder: 5 * time.Second})
		if err != nil {
			b.Fatal(err)
		}

		r, err := NewReplay(Options{Policies: set}, in.Stats().Has)
		if err != nil {
			b.Fatal(err)
		}

		// One log may be shorter than the benchmark.
		for ; done < b.N; done++ {
			e, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			r.Add(e)
		}
	}
}
