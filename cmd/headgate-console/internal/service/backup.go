package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// BackupFile is a backup that is open for reading. Its file has no name any more. While it is open,
// it has the place of the one backup at a time, because it takes as much of the disk as the
// database.
type BackupFile struct {
	*os.File
	giveBack func()
}

// Close closes the file, which ends it, and makes place for another backup.
func (b *BackupFile) Close() error {
	defer b.giveBack()
	return b.File.Close()
}

// Backup returns a backup of the database, as the command restore reads it: with all passwords and
// tokens as hashes, and with the other secrets as they are in the database. The caller closes the
// file. It requires an administrator who has signed in with a password, that password, and a code
// if the administrator has a second factor. The error is ErrCode if the code is wrong,
// ErrCredentials if the password is wrong, a LimitedError after too many failed attempts, and
// ErrBusy while another backup is written or read. The audit log has a row before the backup
// begins.
func (s *Service) Backup(ctx context.Context, a Actor, password, code string) (*BackupFile, error) {
	err := s.withProof(ctx, a, backUpVerb, backUpObject, proof{password, code}, (*action).mayBackUp,
		func(d *action) error { return d.done("", "") })
	if err != nil {
		return nil, err
	}
	return s.openBackup(ctx)
}

// BackupByToken is Backup for a token of the scope Backups, whose user is an administrator still.
func (s *Service) BackupByToken(ctx context.Context, a Actor) (*BackupFile, error) {
	err := s.act(ctx, a, store.CounterUsers, backUpVerb, backUpObject, func(d *action) error {
		if !d.access.Backups || !d.access.Administrator {
			return d.deny("it takes a token of the scope backup of an administrator")
		}
		return d.done("", "")
	})
	if err != nil {
		return nil, err
	}
	return s.openBackup(ctx)
}

// These name a backup in the audit log.
const (
	backUpVerb   = "database.backup"
	backUpObject = "database"
)

// openBackup writes a backup once there is a place for it, and opens it.
func (s *Service) openBackup(ctx context.Context) (b *BackupFile, err error) {
	giveBack, err := s.backups.takeSoon(ctx)
	if err != nil {
		return nil, err
	}
	giveBack = sync.OnceFunc(giveBack)
	defer func() {
		if err != nil {
			giveBack()
		}
	}()

	f, err := s.backUp(ctx)
	if err != nil {
		return nil, err
	}
	return &BackupFile{f, giveBack}, nil
}

// backUp writes a backup, and returns its file without a name.
func (s *Service) backUp(ctx context.Context) (f *os.File, err error) {
	dir, err := os.MkdirTemp(s.db.Directory(), ".backup-")
	if err != nil {
		return nil, err
	}

	path := filepath.Join(dir, "backup.db")
	if err = s.db.Backup(ctx, path); err == nil {
		f, err = os.Open(path)
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil && f != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, err
}

// mayBackUp refuses all but administrators whose session began with a password. Others have none
// that could show who acts.
func (a *action) mayBackUp() error {
	if err := a.manage(); err != nil {
		return err
	}
	if a.actor.via != viaSession {
		return a.deny("it takes a session that began with a password of the console")
	}
	return nil
}
