package jsonapi

import (
	"slices"
	"testing"
	"testing/synctest"
)

func TestGrantIsOfOnePolicyAndOnce(t *testing.T) {
	synctest.Test(t, grantOnce)
}

func grantOnce(t *testing.T) {
	a := inMemory(t)
	const grant = `{"policy":"api","key":"ann","units":3,"until":"2000-01-02T00:00:00Z","id":"1"}`
	for range 2 {
		a.wantCall("grant", grant, 200, `{"outcome":"done","recorded":true}`)
	}
	a.wantCall("peek", `{"key":"ann"}`, 200, `{"allowed":true,"policies":[`+
		`{"policy":"api","allowed":true,"on_limit":"reject","limit":10,"remaining":13,"credit":3,"reset":0},`+
		`{"policy":"login","allowed":true,"on_limit":"degrade","limit":5,"remaining":5,"reset":0}]}`)

	// The token of a take gives back to the credit what came from it.
	token := a.take(`{"key":"ann","cost":12}`)
	if left := a.left("ann"); !slices.Equal(left, []int64{1, 5}) {
		t.Errorf("%d are left", left)
	}
	a.wantCall("refund", `{"token":"`+token+`"}`, 200, `{"outcome":"done"}`)
	if left := a.left("ann"); !slices.Equal(left, []int64{13, 5}) {
		t.Errorf("%d are left", left)
	}
	a.wantCall("revoke", `{"policy":"api","key":"ann"}`, 200, `{"outcome":"done"}`)
	if left := a.left("ann"); !slices.Equal(left, []int64{10, 5}) {
		t.Errorf("%d are left", left)
	}
}

func TestGrantNamesMistakes(t *testing.T) {
	a := inMemory(t)
	for body, want := range map[string]string{
		`{}`: "/policy: it is missing; /key: it is missing; /units: it is missing; /until: it is missing",
		`{"policy":"api","key":"k","units":1,"until":"soon"}`: "/until: it is not an instant as in 2026-03-01T12:00:00Z",
	} {
		if got := a.call("grant", body, nil); got.status != 400 || faultsOf(t, got) != want {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	a.wantCall("revoke", `{"policy":"none","key":"k"}`, 422, `{"type":"about:blank","title":"Unprocessable Entity",`+
		`"status":422,"detail":"the key cannot have these units","errors":[{"pointer":"","detail":`+
		`"invalid operation: there is no rule \"none\" under which a key could have credit"}]}`)
}
