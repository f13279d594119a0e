package mcpmw

// NamelessSessions returns how many sessions without an ID have a key.
func NamelessSessions() (n int) {
	nameless.keys.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}

// ErrorIn is what takes the place of the first message of a refused call.
var ErrorIn = errorIn
