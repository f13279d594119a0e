// Command caddy is Caddy with its standard modules and headgate, for tests.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/headgate/headgate/caddymw"
)

func main() { caddycmd.Main() }
