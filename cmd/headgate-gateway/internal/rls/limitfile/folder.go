package limitfile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultPoll stands for a Poll of 0 in FolderOptions.
const DefaultPoll = 500 * time.Millisecond

// FolderOptions configure a Folder.
type FolderOptions struct {
	Poll   time.Duration // between two looks; 0 means DefaultPoll
	Logger *slog.Logger  // nil means slog.Default()
}

// Folder follows the files in a folder whose names end with .yaml or .yml and do not begin with
// a dot. Folders in it are not read. Links are followed, so it may be a mounted ConfigMap.
type Folder struct {
	path    string
	poll    time.Duration
	logger  *slog.Logger
	changed func(*Config) error
	end     context.CancelFunc
	done    sync.WaitGroup

	used     [sha256.Size]byte // of what was last used, good or not
	lastRead [sha256.Size]byte // of what the last look read
	bad      string            // why it is not in force, as logged, or ""
}

// Follow calls changed with what the files in the folder say, and again after every
// change, until Close. The error is about the first call, and names every mistake by file
// and line. Later, files with a mistake, or an error of changed, are logged once, and the
// limits before stay in force. A change is used once two looks have found the same, so that
// a file that is being written is not mistaken for a complete one.
func Follow(path string, o FolderOptions, changed func(*Config) error) (*Folder, error) {
	f := &Folder{path: path, poll: cmp.Or(o.Poll, DefaultPoll), logger: o.Logger, changed: changed}
	if f.logger == nil {
		f.logger = slog.Default()
	}

	if err := f.reload(true); err != nil {
		return nil, fmt.Errorf("the limits in %q: %w", path, err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	f.end = cancel
	f.done.Go(func() { f.follow(ctx) })
	return f, nil
}

// Close stops following.
func (f *Folder) Close() {
	f.end()
	f.done.Wait()
}

func (f *Folder) follow(ctx context.Context) {
	ticker := time.NewTicker(f.poll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}

		err := f.reload(false)
		switch {
		case err == errNotYet:
		case err == nil:
			f.bad = ""
			f.logger.Info("new limits are in force", "folder", f.path)
		case err.Error() != f.bad:
			f.bad = err.Error()
			f.logger.Error("the limits in a folder cannot be used, so those before stay in force",
				"folder", f.path, "error", strings.ReplaceAll(f.bad, "\n", "; "))
		}
	}
}

var errNotYet = errors.New("there is nothing new to use yet")

// reload reads the files, and puts them in force if they have changed and the look before has
// read the same, or if they are to be used at once. Otherwise it returns errNotYet.
func (f *Folder) reload(atOnce bool) error {
	// After an error even the files that were used before are new, so that the log says they are
	// in force.
	files, err := readFiles(f.path)
	if err != nil {
		f.used, f.lastRead = [sha256.Size]byte{}, [sha256.Size]byte{}
		return err
	}

	// Every look counts, also one that finds what is in force: a file that is cut off at the same
	// point before and after it was cut off in two rewrites.
	digest := digestOf(files)
	again := digest == f.lastRead
	f.lastRead = digest
	if digest == f.used || !again && !atOnce {
		return errNotYet
	}

	f.used = digest
	c, err := Parse(files)
	if err != nil {
		return err
	}
	return f.changed(c)
}

func digestOf(files []File) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%q %d\n", f.Name, len(f.Data))
		h.Write(f.Data)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// readFiles reads the files of a folder in the order of their names.
func readFiles(folder string) ([]File, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}

	var files []File
	remaining := int64(MaxBytes)
	for _, e := range entries {
		ext := strings.ToLower(filepath.Ext(e.Name()))
		if ext != ".yaml" && ext != ".yml" || strings.HasPrefix(e.Name(), ".") {
			continue
		}

		path := filepath.Join(folder, e.Name())
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular():
			if info.IsDir() {
				continue
			}
			return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("it is not a file")}
		case info.Size() > remaining:
			return nil, fmt.Errorf("%s: the files have more than %d bytes together", path, MaxBytes)
		}

		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		remaining -= int64(len(data))
		files = append(files, File{e.Name(), data})
	}

	if len(files) == 0 {
		return nil, errors.New("there is no file whose name ends with .yaml or .yml")
	}

	// The order is that of the names by their bytes, which decides about patterns.
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return files, nil
}
