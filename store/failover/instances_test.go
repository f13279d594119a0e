package failover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

func TestNewInstancesNamesEveryMistake(t *testing.T) {
	_, err := NewInstances(nil, InstancesOptions{TTL: time.Millisecond, Expected: -1})
	want := "failover: the client is nil\nfailover: the TTL 1ms of instances is neither 0 nor within 100ms to 1h0m0s\n" +
		"failover: -1 expected instances are not within 0 to 1048576"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Each row is a heartbeat at a second, what Redis answered, 0 for an error, and
// the number that is believed after it. The TTL is ten seconds.
func TestTheNumberRisesAtOnceAndFallsAfterATTL(t *testing.T) {
	rows := []struct{ at, heard, live int64 }{
		{0, 3, 5}, {5, 4, 5}, {9, 3, 5}, {10, 3, 4}, // lower than 5 since 0, and 4 at most
		{12, 2, 4}, {15, 6, 6}, {20, 1, 6}, {25, 6, 6}, {30, 1, 6}, {39, 2, 6}, {40, 1, 2},
		{45, 1, 2}, {50, 0, 2}, {56, 1, 2}, {60, 1, 2}, {66, 1, 1}, {70, 0, 1}, {71, 2, 2},
	}
	i := &Instances{ttl: 10 * time.Second, log: silent}
	i.live.Store(5)
	for _, row := range rows {
		var err error
		if row.heard == 0 {
			err = errDown
		}
		i.hear(time.Unix(row.at, 0), row.heard, err)
		if got := int64(i.Live()); got != row.live {
			t.Errorf("at %d s: %d, want %d", row.at, got, row.live)
		}
	}
}

func TestSilenceOfRedisIsLoggedOnce(t *testing.T) {
	var text bytes.Buffer
	i := &Instances{ttl: time.Second, log: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: withoutTime}))}
	i.live.Store(3)
	for _, err := range []error{nil, errDown, errors.New("worse"), nil, nil} {
		i.hear(time.Unix(0, 0), 3, err)
	}
	want := `level=WARN msg="headgate: the number of instances is not known and stays" instances=3 error=down` + "\n" +
		`level=INFO msg="headgate: the number of instances is known again"` + "\n"
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
}

func begin(t testing.TB, c redis.UniversalClient, o InstancesOptions) *Instances {
	t.Helper()
	o.Logger = silent
	i, err := NewInstances(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { i.Close() })
	return i
}

func TestInstancesKnowOfEachOther(t *testing.T) {
	server := redistest.Start(t)
	c := connect(t, server.Addr)
	o := InstancesOptions{Key: "fleet", TTL: 900 * ms}
	var fleet []*Instances
	for range 3 {
		fleet = append(fleet, begin(t, c, o))
	}
	others := begin(t, c, InstancesOptions{})
	for n, i := range fleet {
		until(t, fmt.Sprint("instance ", n), func() bool { return i.Live() == 3 })
	}
	everyKeyExpires(t, c)
	server.Freeze()
	if err := fleet[2].Close(); err != nil {
		t.Error(err)
	}
	if got := fleet[0].Live(); got != 3 {
		t.Errorf("%d in an outage", got)
	}
	fell := time.Now()
	server.Thaw()
	until(t, "the end of one", func() bool { return fleet[0].Live() == 2 })
	if took := time.Since(fell); took < o.TTL {
		t.Errorf("believed after %s", took)
	}
	fleet[1].Close()
	if n := c.ZCard(context.Background(), "fleet").Val(); n != 1 {
		t.Errorf("%d are left after one has left", n)
	}
	until(t, "the end of another", func() bool { return fleet[0].Live() == 1 })
	if got := others.Live(); got != 1 {
		t.Errorf("%d of another fleet", got)
	}
}

func TestWithoutRedisTheExpectedNumberStands(t *testing.T) {
	c := connect(t, "127.0.0.1:1")
	if got := begin(t, c, InstancesOptions{Expected: 4}).Live(); got != 4 {
		t.Errorf("%d", got)
	}
	if got := begin(t, c, InstancesOptions{}).Live(); got != 1 {
		t.Errorf("%d", got)
	}
}

func TestInstancesOfAClusterUseOneKey(t *testing.T) {
	nodes := redistest.Cluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.Addrs(nodes), ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	a, b := begin(t, c, InstancesOptions{TTL: time.Second}), begin(t, c, InstancesOptions{TTL: time.Second})
	until(t, "the cluster", func() bool { return a.Live() == 2 && b.Live() == 2 })
}
