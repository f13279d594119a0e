package policyyaml_test

import (
	"fmt"

	"github.com/headgate/headgate/policy/policyyaml"
)

func ExampleDecode_mistakes() {
	_, err := policyyaml.Decode([]byte(`
policies:
- name: login
  apps: []
  limit: 5 per minute
  key: ip+nobody
`))
	fmt.Println(err)
	// Output:
	// policy "login": limit: limit "5 per minute": unknown word "per"; the words are gcra, fixed-window, sliding-log, sliding-window, token-bucket, concurrent, calendar, aligned, burst=, debt=, segments=, start=, ttl= and tz=; unknown word "minute"; "5" has no period; write, say, "100/1m"
	// policy "login": apps: no application is named
	// policy "login": key: the recipe "nobody" is not known
}
