package topkeys_test

import (
	"fmt"

	"github.com/headgate/headgate/observe/topkeys"
)

func Example() {
	sketch, err := topkeys.New(topkeys.Options{Top: 2})
	if err != nil {
		fmt.Println(err)
		return
	}

	for _, key := range []string{"ann", "bob", "ann", "cid", "ann", "bob"} {
		sketch.Add(key)
	}

	summary := sketch.Summary()
	for _, k := range summary.Keys {
		fmt.Printf("%q: %d\n", k.Key, k.Count)
	}
	fmt.Printf("each other key: at most %d of %d\n", summary.Floor, summary.Total)
	// Output:
	// "ann": 3
	// "bob": 2
	// each other key: at most 1 of 6
}
