package store

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"
)

// A transaction that has taken too long was ended by then. That is no fault of the program.
func TestTransactionThatHasEndedIsUnavailable(t *testing.T) {
	everyEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := db.View(ctx, func(tx *Tx) error {
			<-ctx.Done()

			// The transaction is rolled back soon after the end of its context.
			for late := time.After(10 * time.Second); ; {
				_, err := tx.tx.ExecContext(t.Context(), "SELECT 1")
				if errors.Is(err, sql.ErrTxDone) {
					return nil
				}
				select {
				case <-late:
					t.Fatal("the transaction goes on: ", err)
				default:
				}
			}
		})
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v, want %v", err, ErrUnavailable)
		}
	})
}
