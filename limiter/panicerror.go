package limiter

import (
	"fmt"
	"runtime/debug"

	"github.com/headgate/headgate/internal/textform"
)

// PanicError is a panic of a function that the program gave to the limiter, or
// of its store.
type PanicError struct {
	Value any
	Stack []byte
}

// Error is one line, whatever the panic's value is.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %q", textform.Clip(fmt.Sprint(e.Value)))
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

func panicked(value any) error { return &PanicError{value, debug.Stack()} }
