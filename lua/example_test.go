package lua_test

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

// A script holds the algorithms that it needs and no others.
func ExampleScripts() {
	var scripts lua.Scripts
	one := scripts.One(lua.Set(0).With(core.FixedWindow))
	fmt.Println(strings.Contains(one.Text, "function fixed_window"), strings.Contains(one.Text, "function gcra"))
	many := scripts.Many(lua.Set(0).With(core.FixedWindow).With(core.GCRA))
	fmt.Println(strings.Contains(many.Text, "function fixed_window"), strings.Contains(many.Text, "function gcra"))
	// Output:
	// true false
	// true true
}

func Example() {
	var scripts lua.Scripts
	set := lua.Set(0).With(core.FixedWindow)
	one := scripts.One(set)
	fmt.Println(len(one.SHA1), strings.Contains(one.Text, "function fixed_window"))
	// Output: 40 true
}
