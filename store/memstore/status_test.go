package memstore

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/headgate/headgate/observe/events"
)

func TestStatusSaysHowFullTheStoreIs(t *testing.T) {
	s, _ := newStore(t, 64)
	l := limit("5/1h")
	for i := range 500 {
		do(t, s, takes(fmt.Sprint("k", i), l))
	}
	events.ReportOf(s).Listen(&events.Hooks{})
	shared, refused := s.Overflowed()
	want := []events.StoreStatus{{Store: "memory", Of: s, Keys: 64, Overflow: int64(s.Len()) - 64, Bytes: s.Bytes(),
		Shared: shared, Refused: refused}}
	if got := s.Report().Status(nil); !reflect.DeepEqual(got, want) || shared != 500-64 || want[0].Overflow == 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
}
