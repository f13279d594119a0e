package serverclock

import (
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	local := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	server := local.Add(-90 * time.Second)

	// The server is 90 seconds behind, which is no error: the clock follows it and does not judge
	// it.
	var c Clock
	if _, known := c.At(local); known {
		t.Error("a clock is known before an answer")
	}

	// An answer is wrong by at most half of the time that it took. It replaces an older one if it
	// is more exact, or if the two cannot both be true.
	for _, row := range []struct {
		name    string
		at      time.Duration // when the question was sent
		took    time.Duration
		server  time.Duration // the answer, beside the truth
		want    time.Duration // the estimate afterwards, beside the truth
		stepped time.Duration // of the server's clock, from now on
	}{
		{name: "the first answer is believed", took: 100 * time.Millisecond, server: 30 * time.Millisecond,
			want: 30 * time.Millisecond},
		// 400ms beside the truth is within half a second, so the slow answer contradicts nothing
		// and loses.
		{name: "a slower one that agrees is not", at: time.Second, took: time.Second,
			server: -400 * time.Millisecond, want: 30 * time.Millisecond},
		{name: "a faster one is", at: 2 * time.Second, took: 2 * time.Millisecond, want: 0},
		// An hour is more than a second of delay explains: the server's clock was set.
		{name: "a slow one that shows a step is", at: 3 * time.Second, took: time.Second, stepped: -time.Hour},
		{name: "and one back", at: 4 * time.Second, took: time.Millisecond, stepped: time.Hour},
		// After a day the two clocks may have drifted apart by 18 seconds, which is more than half
		// of the 10 that this answer took.
		{name: "an old answer loses to a newer one", at: 25 * time.Hour, took: 10 * time.Second,
			server: time.Second, want: time.Second},
	} {
		server = server.Add(row.stepped)
		sent := local.Add(row.at)
		middle := sent.Add(row.took / 2)

		c.Adjust(sent, sent.Add(row.took), server.Add(row.at+row.took/2+row.server))

		got, known := c.At(middle)
		if beside := got.Sub(server.Add(row.at + row.took/2)); !known || beside != row.want {
			t.Errorf("%s: %s beside the truth, want %s", row.name, beside, row.want)
		}
	}
}
