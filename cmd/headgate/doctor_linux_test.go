package main

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestDoctorFindsAClockThatIsOff(t *testing.T) {
	server := redistest.StartClock(t, -time.Hour)
	examination(t, "redis://"+server.Addr).want(t, "clock", levelWarn, "behind that of this machine, and limits go "+
		"by it")
}
