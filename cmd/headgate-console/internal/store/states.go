package store

// The states of a message to a webhook. Only a waiting one changes.
const (
	StateWaiting = "waiting"
	StateDone    = "done"
	StateFailed  = "failed"
)
