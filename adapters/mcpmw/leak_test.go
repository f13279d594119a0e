package mcpmw_test

import (
	"testing"

	"github.com/headgate/headgate/internal/test"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }
