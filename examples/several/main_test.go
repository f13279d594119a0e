package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
)

func TestSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which begins at midnight, when a day is left
		// Two in ten seconds, and five a day.
		h := handler()

		rows := []struct {
			after      time.Duration
			status     int
			retryAfter string
			header     string
		}{
			{0, 200, "-", `"burst";r=1;t=5, "daily";r=4;t=86400`},
			{0, 200, "-", `"burst";r=0;t=10, "daily";r=3;t=86400`},
			{0, 429, "5", `"burst";r=0;t=10, "daily";r=3;t=86400`},
			{0, 429, "5", `"burst";r=0;t=10, "daily";r=3;t=86400`},
			{5 * time.Second, 200, "-", `"burst";r=0;t=10, "daily";r=2;t=86395`},
			{10 * time.Second, 200, "-", `"daily";r=1;t=86385, "burst";r=1;t=5`},
			{0, 200, "-", `"burst";r=0;t=10, "daily";r=0;t=86385`},
			{10 * time.Second, 429, "86375", `"daily";r=0;t=86375, "burst";r=2;t=0`},
			{86375 * time.Second, 200, "-", `"burst";r=1;t=5, "daily";r=4;t=86400`},
		}

		// A refused request takes nothing of the other limit: after two of them the day has three
		// left.
		for i, row := range rows {
			time.Sleep(row.after)
			a := try.Get(h, "/")
			if a.Status != row.status || a.Show("RateLimit") != row.header || a.Show("Retry-After") != row.retryAfter {
				t.Errorf("request %d: %d %s, Retry-After %s; want %d %s, %s",
					i, a.Status, a.Show("RateLimit"), a.Show("Retry-After"), row.status, row.header, row.retryAfter)
			}

			// The policies are the same in every answer, also in those of refusals.
			if want := `"burst";q=2;w=10, "daily";q=5;w=86400`; a.Show("RateLimit-Policy") != want {
				t.Errorf("request %d: %s", i, a.Show("RateLimit-Policy"))
			}
		}
	})
}
