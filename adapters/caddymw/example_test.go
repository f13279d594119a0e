package caddymw_test

import (
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"

	_ "github.com/headgate/headgate/adapters/caddymw"
)

// A site has the limits of a file.
func Example() {
	const site = `
example.com {
	headgate {
		app      shop
		policies /etc/caddy/limits.yaml
	}
	reverse_proxy 127.0.0.1:8080
}
`
	// What Caddy makes of it has the handler.
	text, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(site), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, handler, _ := strings.Cut(string(text), `{"app":"shop"`)
	handler, _, _ = strings.Cut(handler, "}")
	fmt.Println(`{"app":"shop"` + handler + "}")
	// Output: {"app":"shop","handler":"headgate","policies":"/etc/caddy/limits.yaml"}
}
