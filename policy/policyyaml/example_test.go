package policyyaml_test

import (
	"fmt"
	"log"

	"github.com/headgate/headgate/core"
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

// A program changes a limit in a text of policies.
func Example() {
	text := []byte(`
policies:
- name: login
  apps: [shop]
  limit: 5/1m sliding-log
  key: ip+route
`)

	set, err := policyyaml.Decode(text)
	if err != nil {
		log.Fatal(err)
	}
	set[0].Limit = core.MustParseLimit("10/1m sliding-log")
	text, err = policyyaml.Encode(set)
	fmt.Print(string(text), err)
	// Output:
	// policies:
	// - name: login
	//   apps:
	//   - shop
	//   limit: 10/1m sliding-log
	//   key: ip+route
	// <nil>
}
