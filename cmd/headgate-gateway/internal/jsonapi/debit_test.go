package jsonapi

import (
	"testing"
	"testing/synctest"
)

func TestDebitIsCarriedOutOnceForAnID(t *testing.T) {
	synctest.Test(t, debitOnce)
}

func debitOnce(t *testing.T) {
	a := inMemory(t, one("api", "10/1h fixed-window debt=5"))
	const done = `{"outcome":"done","charged":[{"policy":"api","units":12,"remaining":0,"reset":3600}],"recorded":true}`
	a.wantCall("debit", `{"key":"ann","cost":12,"id":"1"}`, 200, done)
	again := a.wantCall("debit", `{"key":"ann","cost":12,"id":"1"}`, 200, done)
	if again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the headers are %v", again.header)
	}

	// A take with the same id is another item, and the debt has room for 3.
	if got := a.call("take", `{"key":"ann","id":"1"}`, nil); got.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("%s", got.body)
	}
	a.wantCall("debit", `{"key":"ann","cost":4}`, 200,
		`{"outcome":"done","charged":[{"policy":"api","units":3,"remaining":0,"reset":3600}]}`)
}

func TestDebitNeedsAPolicyWithADebt(t *testing.T) {
	a := inMemory(t, one("api", "10/1h sliding-log"))
	a.wantCall("debit", `{"key":"ann","cost":1}`, 422, `{"type":"about:blank","title":"Unprocessable Entity",`+
		`"status":422,"detail":"no policy of the application has a debt"}`)
}
