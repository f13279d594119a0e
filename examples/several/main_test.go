package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/examples/internal/try"
)

func TestARequestThatOneLimitRefusesCostsNothingUnderTheOther(t *testing.T) {
	s := try.Start(t, &program{})
	// The clock of the store shows 03:00 of a day, so that 21 hours are left.
	rows := []struct {
		after  time.Duration
		status int
		header string
	}{
		{0, 200, `"burst";r=1;t=5, "daily";r=4;t=75600`},
		{0, 200, `"burst";r=0;t=10, "daily";r=3;t=75600`},
		{0, 429, `"burst";r=0;t=10, "daily";r=3;t=75600`},
		{0, 429, `"burst";r=0;t=10, "daily";r=3;t=75600`},
		{5 * time.Second, 200, `"burst";r=0;t=10, "daily";r=2;t=75595`},
		{10 * time.Second, 200, `"daily";r=1;t=75585, "burst";r=1;t=5`},
		{0, 200, `"burst";r=0;t=10, "daily";r=0;t=75585`},
		{10 * time.Second, 429, `"daily";r=0;t=75575, "burst";r=2;t=0`},
		{75575 * time.Second, 200, `"burst";r=1;t=5, "daily";r=4;t=86400`},
	}
	for i, row := range rows {
		s.Pass(row.after)
		a := s.Get("/")
		if a.Status != row.status || a.Show("RateLimit") != row.header {
			t.Errorf("request %d: %d %s, want %d %s", i, a.Status, a.Show("RateLimit"), row.status, row.header)
		}
		if want := `"burst";q=2;w=10, "daily";q=5;w=86400`; a.Show("RateLimit-Policy") != want {
			t.Errorf("request %d: %s", i, a.Show("RateLimit-Policy"))
		}
	}
}

func TestRetryAfterIsWhenTheLimitThatRefusedAdmits(t *testing.T) {
	s := try.Start(t, &program{}, "-burst", "1/20s", "-daily", "2/24h")
	s.Get("/")
	for _, want := range []int{20, 43160} { // of the burst, then of the day
		a := s.Get("/")
		if a.Status != 429 || a.Show("Retry-After") != fmt.Sprint(want) {
			t.Fatalf("%d, Retry-After %s, want %d", a.Status, a.Show("Retry-After"), want)
		}
		s.Pass(time.Duration(want) * time.Second)
		if a := s.Get("/"); a.Status != 200 {
			t.Fatalf("%d after the wait", a.Status)
		}
		s.Pass(20 * time.Second)
	}
}

func TestALimitThatMakesNoSenseIsRefused(t *testing.T) {
	status, wrote := try.Attempt(&program{}, "-burst", "0/1s")
	if want := "example: invalid value \"0/1s\" for flag -burst: limit \"0/1s\": quota 0 is not positive\n"; status != 2 || wrote != want {
		t.Errorf("%d %q, want %q", status, wrote, want)
	}
}
