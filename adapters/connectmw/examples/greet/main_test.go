package main

import (
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestCallsWithoutANameDoNotCount(t *testing.T) {
	server := httptest.NewServer(handler("2/1h fixed-window"))
	defer server.Close()

	client := connect.NewClient[text, text](server.Client(), server.URL+hello)

	// Names that are missing cost nothing, and two greetings are all that a client may have.
	for i, row := range []struct {
		name, want string
		code       connect.Code
	}{
		{"", "", connect.CodeInvalidArgument}, {"Ann", "hello Ann", 0}, {"", "", connect.CodeInvalidArgument},
		{"Bob", "hello Bob", 0}, {"Ann", "", connect.CodeResourceExhausted}, {"", "", connect.CodeResourceExhausted},
	} {
		got, err := client.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String(row.name)))
		switch {
		case err != nil && connect.CodeOf(err) != row.code, err == nil && row.code != 0:
			t.Errorf("call %d: %v, want %s", i, err, row.code)
		case err == nil && got.Msg.Value != row.want:
			t.Errorf("call %d: %q, want %q", i, got.Msg.Value, row.want)
		}
	}
}
