// Package service implements all actions of people and programs in the console:
// policies and their history, applications, users, log-in, tokens, the audit log,
// import and export, and the set to publish to the running instances.
//
// [New] makes a [Service]. An [Actor] comes from a log-in, a token or a proxy. [Alarm], [Calendar],
// [Ledger] and [Outbox] are for the program itself.
//
// Every method that takes an [Actor] checks the actor's permissions in the
// transaction that does the work, and writes a refusal to the audit log. A change
// and its row in the audit log are one transaction. Callers need no checks of
// their own.
//
// Methods are safe for concurrent use. They return these errors, for errors.Is and
// errors.As: [*InvalidError], [*ConflictError], [*DeniedError], [*LimitedError],
// [ErrDenied], [ErrNotFound], [ErrUnavailable], [ErrNotLoggedIn], [ErrCredentials],
// [ErrMoved], [ErrPasswordChange], [ErrSecondFactor], [ErrTokenExpired] and the error of a context
// that ended. Any other error is a fault of the program. Its text is for the log and not for
// people.
//
// Texts are returned as they were stored. They may be hostile, so a page has to
// escape them.
package service
