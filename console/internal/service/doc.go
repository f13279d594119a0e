// Package service is everything that people and programs may do in the console:
// policies and their history, applications, users, log-in, tokens, the audit log,
// import and export, and what is published to the running instances.
//
// Every method that takes an [Actor] checks, in the transaction that does the
// work, what the actor may do at that moment, and writes a refusal to the audit
// log. A change and its row in the audit log are one transaction. Whoever calls
// the methods has to check nothing, and shows what they return.
//
// Methods are safe for concurrent use, and return these errors, to be told apart
// with errors.Is and errors.As: [*InvalidError], [*ConflictError],
// [*DeniedError], [*LimitedError], [ErrDenied], [ErrNotFound], [ErrUnavailable],
// [ErrNotLoggedIn], [ErrCredentials], [ErrMoved], [ErrPasswordChange] and the
// error of a context that ended. Anything else is a fault of the program, whose
// text is for the log and not for people.
//
// Texts are given back as they were put in. They may hold anything that a hostile
// user can think of, so that a page has to escape them.
package service
