// Package filesource reads policies from a file, which may be replaced while a program follows it.
//
//	source, err := filesource.New(file) // ends with .json, .yaml or .yml
//	if err != nil {
//		log.Fatal(err)
//	}
//	l := limiter.MustNew(limiter.Config{})
//	follower, err := policy.Follow(ctx, l, "shop", policy.Bindings{}, source, policy.Options{})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer follower.Close()
//
// [Source] says when the file is read again. A [policy.Follower] puts what it reads in force; one
// source may serve several.
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
	"github.com/headgate/headgate/policy/policyyaml"
)

const (
	// still is how long a file must be unchanged before it is read again, so that
	// a file that is being written is not mistaken for a complete one.
	still = 100 * time.Millisecond

	// reread is how long an unchanged time, size and identity are trusted.
	reread = 10 * time.Second
)

// Source is a file of policies, in JSON or YAML. It is a [policy.Source] and
// safe for concurrent use.
//
// The file is read when its time, size or identity has changed, and every ten
// seconds in any case. The version is a digest of its bytes, so writing the same
// bytes again is no change. Replace the file by renaming another to it. A file
// that is written in place is read once it has been unchanged for a tenth of a
// second, except the first time.
type Source struct {
	path   string
	decode func([]byte) (policy.Set, error)
	max    int64 // bytes

	mu      sync.Mutex
	info    fs.FileInfo // of the last read; guarded by mu
	readAt  time.Time   // guarded by mu
	version string      // of the last read; guarded by mu
}

// New returns the source at the path, which ends with .json, .yaml or .yml. The
// file need not exist yet.
func New(path string) (*Source, error) {
	s := &Source{path: path}
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".json":
		s.decode, s.max = policy.DecodeJSON, policy.MaxBytes
	case ".yaml", ".yml":
		s.decode, s.max = policyyaml.Decode, policyyaml.MaxBytes
	default:
		return nil, fmt.Errorf("filesource: %q does not end with .json, .yaml or .yml", path)
	}
	return s, nil
}

// Load implements [policy.Source]. It does not return while the file system hangs.
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

	// The common poll ends here, without reading the file. A caller who has no version yet does not
	// wait for a file that may grow.
	now := time.Now()
	if known != "" && known == s.version && (s.isSameLocked(info, now) || mayGrow(info, now)) {
		return policy.Snapshot{}, policy.ErrUnchanged
	}

	data, err := s.read()
	if err != nil {
		return policy.Snapshot{}, fmt.Errorf("filesource: %w", err)
	}

	// The version is known even if the policies cannot be decoded, so that they are refused once.
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

// isSameLocked reports whether the file has not been touched since it was read.
func (s *Source) isSameLocked(info fs.FileInfo, now time.Time) bool {
	return now.Sub(s.readAt) < reread && os.SameFile(s.info, info) &&
		s.info.ModTime().Equal(info.ModTime()) && s.info.Size() == info.Size()
}

// mayGrow reports whether another process may still be writing the file. A time
// in the future comes from another clock and does not count.
func mayGrow(info fs.FileInfo, now time.Time) bool {
	age := now.Sub(info.ModTime())
	return age >= 0 && age < still
}

// read reads at most one byte more than the decoder accepts.
func (s *Source) read() ([]byte, error) {
	file, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, s.max+1))
}
