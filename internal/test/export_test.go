package test

var (
	Patience = &patience
	Wait     = wait
)
