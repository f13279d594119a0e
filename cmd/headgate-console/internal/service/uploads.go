package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
)

// keptUpload is for how long the text of an import is kept.
const keptUpload = time.Hour

// KeepImport keeps the data of an import while the user looks at its plan, and returns what names
// it in [Import.Kept]. It is kept for an hour, or until the user imports it or keeps other data. A
// token may not keep any.
func (s *Service) KeepImport(ctx context.Context, a Actor, data []byte) (kept string, err error) {
	kept = auth.Digest(string(data))
	err = s.act(ctx, a, store.CounterUsers, "policy.import", "policies", func(d *action) error {
		if err := d.person(); err != nil {
			return err
		}
		if len(data) > policy.MaxBytes {
			return invalid("data", fmt.Sprintf("%d bytes are more than %d", len(data), policy.MaxBytes))
		}

		// A user has one upload. Those of others that are too old go with it.
		if err := d.ForgetUploads(a.user, d.now-keptUpload.Microseconds()); err != nil {
			return err
		}

		return d.InsertUpload(store.Upload{User: a.user, Digest: kept, At: d.now, Data: data})
	})
	return kept, err
}

// kept returns the data of an import that is kept.
func (s *Service) kept(ctx context.Context, a Actor, kept string) (data []byte, err error) {
	err = s.ask(ctx, a, "policy.import", "policies", func(d *action) (err error) {
		data, err = d.Upload(a.user, kept, d.now-keptUpload.Microseconds())
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return nil, invalid("data", "it is not kept any more, because an hour has passed "+
			"or you have sent another import since; send it again")
	}
	return data, err
}
