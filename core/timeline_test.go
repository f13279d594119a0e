package core_test

import (
	"testing"

	"github.com/headgate/headgate/store/storetest"
)

// The steps are pure, so a map is all that it takes to run them.
func TestTimelines(t *testing.T) {
	storetest.Timelines(t, storetest.NewModel)
}
