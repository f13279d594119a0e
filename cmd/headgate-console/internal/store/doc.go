// Package store keeps the console's data in SQL: SQLite in a file, or MySQL or MariaDB. It deals
// with tables and transactions; permissions and the meaning of policies belong to the service.
// [Open] returns a [DB], whose View and Update run a function in a transaction. Its [Tx] has the
// methods that read and write rows. Values reach SQL by placeholders only, and all SQL but the
// migrations, sqlite.go and mysql.go is the same for both engines.
package store
