package storetest

import "testing"

func TestKeptUnitsAreBounded(t *testing.T) { Kept(t, 10_000, Seed, NewModel) }
