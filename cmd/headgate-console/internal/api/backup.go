package api

import (
	"github.com/headgate/headgate/cmd/headgate-console/internal/server"
)

// backup answers with a backup of the database. It is an answer to POST, which is not compressed.
func (c *call) backup() error {
	f, err := c.o.Service.BackupByToken(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	defer f.Close()
	return server.SendBackup(c.w, f.File, c.o.Clock())
}
