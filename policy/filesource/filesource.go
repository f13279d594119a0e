// Package filesource has policies in a file.
package filesource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/policy"
)

const (
	// still is how long a file must have been left alone before it is read
	// again, so that one that is being written is not taken for a whole one.
	still = 100 * time.Millisecond

	// reread is how long the marks of a file are relied on.
	reread = 10 * time.Second
)

// Source is a file of policies, in JSON or YAML. It is a [policy.Source] and
// safe for concurrent use.
//
// The file is only read when its time, size or identity has changed, and every
// ten seconds in any case. The version is a digest of its bytes, so writing the
// same again is no change. Replace the file by renaming another to it. One that
// is written in place is read when it has been left alone for a tenth of a
// second, except at the first time.
type Source struct {
	path   string
	decode func([]byte) (policy.Set, error)
	most   int64

	mu      sync.Mutex
	info    fs.FileInfo // when the file was read last
	readAt  time.Time
	version string // of what was read last
}

// New returns the source at the path, which ends with .json, .yaml or .yml. The
// file need not exist yet.
func New(path string) (*Source, error) {
	s := &Source{path: path}
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".json":
		s.decode, s.most = policy.DecodeJSON, policy.MaxBytes
	case ".yaml", ".yml":
		s.decode, s.most = policy.DecodeYAML, policy.MaxBytesYAML
	default:
		return nil, fmt.Errorf("filesource: %q does not end with .json, .yaml or .yml", path)
	}
	return s, nil
}

// Load implements [policy.Source]. A file system that hangs makes it hang.
func (s *Source) Load(ctx context.Context, known string) (policy.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return policy.Snapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return policy.Snapshot{}, fmt.Errorf("filesource: %w: %w", policy.ErrMissing, err)
	case err != nil:
		return policy.Snapshot{}, fmt.Errorf("filesource: %w", err)
	case !info.Mode().IsRegular():
		return policy.Snapshot{}, fmt.Errorf("filesource: %s is not a regular file", s.path)
	}
	now := time.Now()
	if known != "" && known == s.version && (s.isSame(info, now) || isFresh(info, now)) {
		return policy.Snapshot{}, policy.ErrUnchanged
	}
	data, err := s.read()
	if err != nil {
		return policy.Snapshot{}, fmt.Errorf("filesource: %w", err)
	}
	sum := sha256.Sum256(data)
	s.info, s.readAt, s.version = info, now, hex.EncodeToString(sum[:8])
	if s.version == known {
		return policy.Snapshot{}, policy.ErrUnchanged
	}
	set, err := s.decode(data)
	if err != nil {
		return policy.Snapshot{}, &policy.RevisionError{Version: s.version, Err: err}
	}
	return policy.Snapshot{Version: s.version, Policies: set}, nil
}

// isSame tells that the file has not been touched since it was read.
func (s *Source) isSame(info fs.FileInfo, now time.Time) bool {
	return now.Sub(s.readAt) < reread && os.SameFile(s.info, info) &&
		s.info.ModTime().Equal(info.ModTime()) && s.info.Size() == info.Size()
}

// isFresh tells that somebody may still be writing. A time in the future is
// that of another clock.
func isFresh(info fs.FileInfo, now time.Time) bool {
	age := now.Sub(info.ModTime())
	return age >= 0 && age < still
}

// read reads a byte more than there may be, for the decoder to refuse.
func (s *Source) read() ([]byte, error) {
	file, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, s.most+1))
}
