// This file reads and writes the last good policies.

package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/internal/textform"
)

// kept is the content of the file Options.LastGood.
type kept struct {
	App     string          `json:"app"`
	Version string          `json:"version"`
	Set     json.RawMessage `json:"set"`
}

// readLastGood reads the file that writeLastGood has written for the application.
func readLastGood(path, app string) (Snapshot, error) {
	data, err := readBounded(path, 2*MaxBytes)
	if err != nil {
		return Snapshot{}, err
	}
	var k kept
	if err := strictjson.Decode(data, &k); err != nil {
		return Snapshot{}, err
	}

	// Every process needs its own file. One of another application is a mistake of the set-up, and
	// its policies are not ours.
	if k.App != app {
		return Snapshot{}, fmt.Errorf("it holds the policies of %q", textform.Clip(k.App))
	}
	if k.Version == "" {
		return Snapshot{}, errors.New("it names no version")
	}

	set, err := DecodeJSON(k.Set)
	return Snapshot{k.Version, set}, err
}

// readBounded reads a regular file of at most bound bytes.
func readBounded(path string, bound int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}

	// It is checked before it is opened, as opening a pipe may wait for its writer for ever.
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	// One byte more is asked for, to know whether there are more.
	data, err := io.ReadAll(io.LimitReader(file, bound+1))
	if err == nil && int64(len(data)) > bound {
		err = fmt.Errorf("it has more than %d bytes", bound)
	}
	return data, err
}

// writeLastGood replaces the file by the policies of the application.
func writeLastGood(path, app string, s Snapshot) error {
	set, err := EncodeJSON(s.Policies.For(app))
	if err != nil {
		return err
	}
	data, err := json.Marshal(kept{app, s.Version, set})
	if err != nil {
		return err
	}
	return replaceFile(path, data)
}

// replaceFile writes a new file beside the old one, syncs it to the disk and
// renames it over the old one, so that the path always names a complete file.
func replaceFile(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // with the mode 0600
	if err != nil {
		return err
	}

	// The content is on the disk before the name points to it. Otherwise a crash could leave an
	// empty file under the name.
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}

	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}

	return syncDir(filepath.Dir(path))
}

// syncDir syncs the new name to the disk, on systems that support it.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
