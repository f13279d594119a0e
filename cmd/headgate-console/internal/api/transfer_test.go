package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// told tells when the answer is begun.
type told struct {
	http.ResponseWriter
	begun func()
}

func (t told) WriteHeader(status int) {
	t.begun()
	t.ResponseWriter.WriteHeader(status)
}

// A client that receives its answer slowly has no place among the imports any more.
func TestPlaceOfAnImportIsFreeBeforeTheAnswer(t *testing.T) {
	w := newWorld(t)
	owner, err := w.AuthenticateByProxy(t.Context(), "owner", service.Meta{})
	if err != nil {
		t.Fatal(err)
	}

	answers := 0
	r := request{"POST", "/api/import/plan", object{"policies": []any{}}, nil}.build(w.cast["owner"])
	w.api.ServeHTTP(told{httptest.NewRecorder(), func() {
		answers++
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done, err := w.AdmitImport(ctx, owner, false)
		if err != nil {
			t.Errorf("another import of the user while the answer is sent: %v", err)
			return
		}
		done()
	}}, r)
	if answers != 1 {
		t.Errorf("there are %d answers", answers)
	}
}
