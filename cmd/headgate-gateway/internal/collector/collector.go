// Package collector lets the garbage collector of a program with little memory run less often.
// [Relax] has it do so.
package collector

import (
	"os"
	"runtime"
)

// reserve is the size of the memory that is never touched. The heap may be larger by as
// much before it is collected. It consists of pieces, because the runtime writes zeros to
// the whole of an allocation if any page of it was in use before.
const (
	reserve = 64 << 20
	piece   = 1 << 20
)

// held keeps the reserve alive.
var held [][]byte

// Relax makes the collector run less often, unless the environment has GOGC or GOMEMLIMIT.
//
// A collection begins when the heap is twice what was in use after the last. A gateway whose
// counts are in Redis uses some 10 MB, so at 20,000 calls a second it would collect several times
// a second, and each time make the stacks of all idle goroutines small again. Relax therefore
// allocates memory that is never touched, so that no page of it exists, but which the
// collector takes for memory in use. Unlike a higher GOGC, it costs no more if the heap
// is large.
func Relax() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	for range reserve / piece {
		held = append(held, make([]byte, piece))
	}
	runtime.GC() // from which the next is reckoned
}
