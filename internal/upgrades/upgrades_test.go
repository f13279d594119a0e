package upgrades

import (
	"net/http"
	"testing"
)

func TestAllow(t *testing.T) {
	for name, row := range map[string]struct {
		protocols Protocols
		method    string
		wish      []string
		want      bool
	}{
		"none":      {nil, "GET", nil, true},
		"websocket": {nil, "GET", []string{"WebSocket"}, true},
		"h2c":       {nil, "GET", []string{"h2c"}, false},
		"empty":     {nil, "GET", []string{""}, false},

		// A server may agree to any element of a list, and to any of several lines.
		"a list":    {nil, "GET", []string{"websocket, h2c"}, false},
		"two lines": {nil, "GET", []string{"websocket", "h2c"}, false},
		"twice":     {nil, "GET", []string{"websocket", "websocket"}, false},

		// The names of the config replace the default.
		"named":     {Protocols{"mqtt"}, "GET", []string{"MQTT"}, true},
		"not named": {Protocols{"mqtt"}, "GET", []string{"websocket"}, false},

		// HTTP/2 asks for a WebSocket by CONNECT; without a protocol that is allowed it makes a
		// tunnel.
		"CONNECT":            {nil, "CONNECT", nil, false},
		"CONNECT, websocket": {nil, "CONNECT", []string{"websocket"}, true},
		"CONNECT, h2c":       {nil, "CONNECT", []string{"h2c"}, false},
	} {
		// No line and an empty one differ: the latter wishes for a protocol without a name.
		h := http.Header{}
		if row.wish != nil {
			h["Upgrade"] = row.wish
		}

		if got := row.protocols.AllowMethod(row.method, h); got != row.want {
			t.Errorf("%s: %t, want %t", name, got, row.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, name := range []string{"websocket", "mqtt", "IRC/6.9"} {
		if err := Check(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "h2c", "H2C", "h2", "HTTP/2.0", "TLS/1.2", "a b", "a,b", "a/b/c"} {
		if Check(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}
