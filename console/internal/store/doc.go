// Package store keeps the console's data in SQL: SQLite in a file, or MySQL or
// MariaDB. It knows tables and transactions, and neither permissions nor what a
// policy means; those are the service's.
//
// All SQL is the same for both engines, apart from the migrations and what is in
// the two files that are named for an engine. Values reach it through
// placeholders only.
package store
