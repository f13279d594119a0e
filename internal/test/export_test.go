package test

// Patience is how long goroutines may live on after the tests.
var Patience = &patience
