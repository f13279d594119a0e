// Package apply implements the commands apply and diff: policies in files, say in a Git
// repository, are compared with those of a console or written to it. The console decides who may
// do what, and writes all changes in one transaction: see [service.Service.Import]. The files are
// the source of truth: the versions, authors and times of an export in them are ignored.
package apply
