package httpexchange

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// foreign is the writer of another server.
type foreign struct{ http.ResponseWriter }

// wrapper is a writer that says what is under it.
type wrapper struct{ http.ResponseWriter }

func (w wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestWritersOfServersAreKnown(t *testing.T) {
	// The two versions have writers of different types, and both send no empty list.
	for _, http2 := range []bool{false, true} {
		known := map[string]bool{}

		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			known["the server's"], known["a wrapper"] = sendsNoEmptyList(w), sendsNoEmptyList(wrapper{wrapper{w}})
			known["another"], known["a wrapper of another"] =
				!sendsNoEmptyList(foreign{w}), !sendsNoEmptyList(wrapper{foreign{w}})

			// That of a TimeoutHandler copies the header itself, so that nothing is known of it.
			http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				known["that of a TimeoutHandler"] = !sendsNoEmptyList(w)
			}), 1e9, "").ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		}))

		// The server closes after its answer: known is complete, and read by no other goroutine.
		server.EnableHTTP2 = http2
		server.StartTLS()
		answer, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		server.Close()

		if len(known) != 5 || (answer.ProtoMajor == 2) != http2 {
			t.Fatalf("%s: %v", answer.Proto, known)
		}
		for name, ok := range known {
			if !ok {
				t.Errorf("%s: %s is taken for what it is not", answer.Proto, name)
			}
		}
	}

	// A wrapper that wraps nothing must not be followed into a nil.
	if sendsNoEmptyList(nil) || sendsNoEmptyList(wrapper{}) {
		t.Error("no writer is taken for that of a server")
	}
}

func TestKnowingAWriterAllocatesNothing(t *testing.T) {
	var w http.ResponseWriter = wrapper{httptest.NewRecorder()}
	if n := testing.AllocsPerRun(100, func() { sendsNoEmptyList(w) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
