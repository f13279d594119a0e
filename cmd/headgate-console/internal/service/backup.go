package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// Backup returns a backup of the database, as the command restore reads it: with all passwords and
// tokens as hashes, and with the other secrets as they are in the database. The caller closes the
// file, which has no name any more. It requires an administrator, who has signed in. The error is
// ErrBusy while another backup is written. The audit log has a row before the backup begins.
func (s *Service) Backup(ctx context.Context, a Actor) (f *os.File, err error) {
	err = s.act(ctx, a, store.CounterUsers, "database.backup", "database", func(d *action) error {
		if err := d.manage(); err != nil {
			return err
		}
		return d.done("", "")
	})
	if err != nil {
		return nil, err
	}

	giveBack, err := s.backups.takeSoon(ctx)
	if err != nil {
		return nil, err
	}
	defer giveBack()

	dir, err := os.MkdirTemp(s.db.Directory(), ".backup-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	path := filepath.Join(dir, "backup.db")
	if err := s.db.Backup(ctx, path); err != nil {
		return nil, err
	}
	return os.Open(path)
}
