// Package service implements all actions of people and programs in the console, such as changes of
// policies and log-ins. [New] makes a [Service], which is safe for concurrent use. Every method
// that takes an [Actor], who comes from a log-in, a token or a proxy, checks its permissions in
// the transaction that does the work. Texts are returned as they were stored: they may be hostile,
// so a page has to escape them.
package service
