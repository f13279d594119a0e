package engine

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test"
)

func TestFacesThatAnswerNoClientAreNamed(t *testing.T) {
	log := new(test.Log)
	e, err := Open(t.Context(), Options{Apps: []string{"shop"}, Source: Fixed(nil),
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}

	defer e.Close()

	// One face of each kind, and the warning comes once for each that cannot.
	for _, f := range []Face{{Name: "spoe"}, {Name: "proxy", AnswersClients: true}} {
		if _, err := e.Limiter("", f); err != nil {
			t.Fatal(err)
		}
	}

	e.WarnOfRefusals()
	text := log.String()
	if strings.Count(text, "does not answer clients") != 1 || !strings.Contains(text, "face=spoe") {
		t.Errorf("logged\n%s", text)
	}
}
