package server

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

// maxDownload is how long a client may take to receive a file, which may be large.
const maxDownload = time.Hour

// SendBackup answers with a backup of the console from this time, as a file to save. The answer may
// take an hour, whatever the deadline of others is. The error is from before the answer begins.
func SendBackup(w http.ResponseWriter, f *os.File, at time.Time) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("server: the backup: %w", err)
	}

	// A server that has no deadline needs no other.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(maxDownload))
	h := w.Header()
	h.Set("Content-Type", "application/vnd.sqlite3")
	h.Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	h.Set("Content-Disposition", "attachment; filename=headgate-console-"+at.UTC().Format("20060102-1504")+".db")
	_, _ = io.Copy(w, f) // the client may have gone
	return nil
}
