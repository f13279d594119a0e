// Package store keeps the console's data in SQL: SQLite in a file, or MySQL or
// MariaDB. It deals with tables and transactions; permissions and the meaning of
// policies belong to the service.
//
// [Open] returns a [DB]. [DB.View] and [DB.Update] run a function in a transaction, whose [Tx] has
// the methods that read and write rows.
//
// All SQL is the same for both engines, apart from the migrations and the two files
// that are named after an engine. Values reach it through placeholders only.
package store
