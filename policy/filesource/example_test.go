package filesource_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/filesource"
)

const limits = `
policies:
- name: login
  apps: [shop]
  limit: 5/1m sliding-log
  key: ip+route
`

// A limiter follows the policies in a file while it changes.
func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "limits.yaml")
	if err := os.WriteFile(file, []byte(limits), 0o600); err != nil {
		log.Fatal(err)
	}

	source, err := filesource.New(file) // ends with .json, .yaml or .yml
	if err != nil {
		log.Fatal(err)
	}
	l := limiter.MustNew(limiter.Config{})
	follower, err := policy.Follow(ctx, l, "shop", policy.Bindings{}, source, policy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer follower.Close()

	fmt.Println(l.RuleNames())
	// Output: [login]
}
