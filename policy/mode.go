package policy

import (
	"fmt"
	"github.com/headgate/headgate/internal/textform"
)

// Mode says whether a policy is in force. Its text is its name in lower case.
type Mode uint8

// The modes. The zero value is Enforce.
const (
	Enforce Mode = iota
	Shadow       // requests are counted and reported, and none is refused
	Off          // ignored
)

var modeNames = [...]string{Enforce: "enforce", Shadow: "shadow", Off: "off"}

// String returns "enforce", "shadow" or "off".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// MarshalText returns String; an unknown mode is an error.
func (m Mode) MarshalText() ([]byte, error) {
	if int(m) >= len(modeNames) {
		return nil, fmt.Errorf("%s is not known", m)
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads what MarshalText writes; "" is Enforce.
func (m *Mode) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = Enforce
		return nil
	}
	for i, name := range modeNames {
		if string(text) == name {
			*m = Mode(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not enforce, shadow or off", textform.Clip(string(text)))
}
