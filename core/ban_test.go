package core

import (
	"strings"
	"testing"
	"time"
)

const (
	banSecond = int64(1_000_000)
	banStart  = 1_800_000_000 * banSecond
)

// begin strikes until a ban begins, and returns how long it is.
func (c *Conduct) begin(t *testing.T, b *Ban, now int64) int64 {
	t.Helper()
	c.settle(b, now)
	for n := int64(1); n <= b.Strikes; n++ {
		if left := c.delay(now); left != 0 {
			t.Fatalf("banned for %d before strike %d", left, n)
		}
		c.strike(b, now)
	}
	return c.delay(now)
}

func TestBanBeginsWithTheLastStrike(t *testing.T) {
	b := Ban{3, time.Minute, 10 * time.Minute, time.Hour}
	for _, row := range []struct {
		name  string
		third int64 // when it comes
		want  int64 // how long the ban is
	}{
		{"at once", 0, 600 * banSecond},
		{"a microsecond before the first is forgotten", 60*banSecond - 1, 600 * banSecond},
		{"as the first is forgotten", 60 * banSecond, 0},
	} {
		c := Conduct{}
		for _, at := range []int64{0, 0, row.third} {
			c.settle(&b, banStart+at)
			c.strike(&b, banStart+at)
		}
		if got := c.delay(banStart + row.third); got != row.want {
			t.Errorf("%s: banned for %d, want %d", row.name, got, row.want)
		}
	}
}

// Each ban is twice as long as the one before, until Max, and all are forgotten after Max
// without one.
func TestBanDoubles(t *testing.T) {
	b := Ban{2, time.Minute, 10 * time.Minute, time.Hour}
	c, now := Conduct{}, banStart
	for _, minutes := range []int64{10, 20, 40, 60, 60, 60} {
		span := c.begin(t, &b, now)
		if span != minutes*60*banSecond {
			t.Errorf("banned for %d, want %d minutes", span, minutes)
		}
		if got := c.reset(&b, now); got != span+3600*banSecond {
			t.Errorf("forgotten after %d", got)
		}
		now += span
	}
	almost, whole := c, c
	if got := almost.begin(t, &b, now+3600*banSecond-1); got != 3600*banSecond {
		t.Errorf("a microsecond before it is forgotten the ban is %d", got)
	}
	if got := whole.begin(t, &b, now+3600*banSecond); got != 600*banSecond {
		t.Errorf("when it is forgotten the ban is %d", got)
	}
	c.settle(&b, now+3600*banSecond)
	if c != (Conduct{}) || c.reset(&b, now) != 0 {
		t.Errorf("%+v is left", c)
	}
}

// A ban whose first is the longest has one level, and its end is all that is kept.
func TestBanOfOneLength(t *testing.T) {
	b := Ban{1, time.Second, time.Hour, time.Hour}
	c, now := Conduct{}, banStart
	for range 3 {
		if span := c.begin(t, &b, now); span != 3600*banSecond || c.Level != 1 {
			t.Errorf("%+v", c)
		}
		now = c.Until
	}
}

// After a clock has stepped back a ban lasts at most Max, and strikes count at most Within.
func TestBanAfterAClockStep(t *testing.T) {
	b := Ban{2, time.Minute, 10 * time.Minute, time.Hour}
	c := Conduct{}
	c.begin(t, &b, banStart)
	for _, row := range []struct {
		back    int64
		changed bool
		want    int64
	}{{0, false, 600}, {3000 * banSecond, false, 3600}, {3000*banSecond + 1, true, 3600}, {9000 * banSecond, true, 3600}} {
		d := c
		if changed := d.settle(&b, banStart-row.back); changed != row.changed || d.delay(banStart-row.back) != row.want*banSecond {
			t.Errorf("%d back: changed %v, banned for %d", row.back, changed, d.delay(banStart-row.back))
		}
	}
	c = Conduct{}
	c.strike(&b, banStart)
	if !c.settle(&b, banStart-1) || c.reset(&b, banStart-1) != 60*banSecond || c.Strikes != 1 {
		t.Errorf("%+v", c)
	}
}

// A lower Max holds at once, and a lower number of strikes at the next.
func TestBanThatChanges(t *testing.T) {
	b := Ban{5, time.Minute, 10 * time.Minute, time.Hour}
	c := Conduct{}
	for range 4 {
		c.strike(&b, banStart)
	}
	lower := Ban{2, time.Minute, time.Minute, 5 * time.Minute}
	c.settle(&lower, banStart)
	if c.strike(&lower, banStart); c.delay(banStart) != 60*banSecond {
		t.Errorf("banned for %d", c.delay(banStart))
	}
	c = Conduct{}
	c.begin(t, &b, banStart)
	if c.settle(&lower, banStart); c.delay(banStart) != 300*banSecond {
		t.Errorf("banned for %d", c.delay(banStart))
	}
}

func TestBanMistakes(t *testing.T) {
	good := Ban{20, time.Minute, 10 * time.Minute, 24 * time.Hour}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, row := range []struct {
		change func(*Ban)
		want   []string
	}{
		{func(b *Ban) { b.Strikes = 0 }, []string{"strikes 0 is not within 1 to 2147483648"}},
		{func(b *Ban) { b.Strikes = maxStrikes + 1 }, []string{"strikes 2147483649 is not"}},
		{func(b *Ban) { b.Within = 0 }, []string{"within 0s is not within 1ms to"}},
		{func(b *Ban) { b.Within = time.Millisecond + 1 }, []string{"within 1.000001ms is not a whole number of microseconds"}},
		{func(b *Ban) { b.For = -1 }, []string{"for -1ns is not"}},
		{func(b *Ban) { b.Max = MaxPeriod + time.Microsecond }, []string{"max 9600h0m0.000001s is not"}},
		{func(b *Ban) { b.Max = time.Minute }, []string{"for is above max"}},
		{func(b *Ban) { *b = Ban{} }, []string{"strikes 0", "within 0s", "for 0s", "max 0s"}},
	} {
		b := good
		row.change(&b)
		err := b.Validate()
		for _, want := range row.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", b, err, want)
			}
		}
	}
}
