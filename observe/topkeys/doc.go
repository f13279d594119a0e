// Package topkeys finds the keys that are counted most often, in bounded memory.
//
//	sketch, err := topkeys.New(topkeys.Options{Top: 2})
//	if err != nil {
//		fmt.Println(err)
//		return
//	}
//
//	for _, key := range []string{"ann", "bob", "ann", "cid", "ann", "bob"} {
//		sketch.Add(key)
//	}
//
//	summary := sketch.Summary()
//	for _, k := range summary.Keys {
//		fmt.Printf("%q: %d\n", k.Key, k.Count)
//	}
//
// A [Sketch] counts keys over the last minutes, and is safe for concurrent use. Its [Summary] has
// the most frequent of them, each a [Key] with an upper bound of its error. Summaries of several
// processes can be merged, see [Merge], and have a JSON form of bounded size.
//
// The count of a key is never too low, and too high by at most its error. For N keys counted and m
// counters an error is at most about N/m, and a key that was counted more often than that has a
// counter, whatever else was counted. There are at least four counters for each key of a summary.
// No client can choose with which other keys its own shares them.
package topkeys
