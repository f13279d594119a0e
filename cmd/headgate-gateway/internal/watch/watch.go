// Package watch tells when files have other contents than those that were read. It polls, so it
// works on every file system, and follows symbolic links, as those of a volume of Kubernetes.
//
// [Read] reads a file and its digest. [Files.Look] says what the digests are now.
package watch

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"time"
)

// MaxFile is the largest file in bytes.
const MaxFile = 1 << 20

// Sum is the digest of a file's contents. The zero value stands for a file that cannot be read.
type Sum [sha256.Size]byte

// Read returns the contents of a file of at most MaxFile bytes, and their digest.
func Read(path string) ([]byte, Sum, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, Sum{}, err
	}
	defer file.Close()

	// One byte more tells a file that is too large.
	text, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err == nil && len(text) > MaxFile {
		err = fmt.Errorf("it has more than %d bytes", MaxFile)
	}
	if err != nil {
		return nil, Sum{}, err
	}
	return text, sha256.Sum256(text), nil
}

// oldEnough is the age from which the time of a file tells its contents from later ones. Two
// changes that follow one another may have one time.
const oldEnough = 2 * time.Second

// Files looks at files. The zero value has looked at none. It is not for concurrent use.
type Files struct {
	seen map[string]seen
	last map[string]Sum // of the last look
}

// seen is what a file was when it was read last.
type seen struct {
	info os.FileInfo
	at   time.Time
	sum  Sum
}

// Look reports whether files differ from those that were read, and whether they are the same as
// at the last look. A file that is being written differs at each look. A file is read only if its
// time, its size or its identity has changed.
func (f *Files) Look(read map[string]Sum, now time.Time) (changed, settled bool) {
	// A file that is not asked about any more is forgotten.
	next, sums := map[string]seen{}, map[string]Sum{}
	for path := range read {
		next[path] = f.look(path, now)
		sums[path] = next[path].sum
	}

	settled = maps.Equal(sums, f.last)
	f.seen, f.last = next, sums
	return !maps.Equal(sums, read), settled
}

// look returns what a file is now.
func (f *Files) look(path string, now time.Time) seen {
	info, err := os.Stat(path)
	if err != nil {
		return seen{}
	}

	// A file that is as it was is not read again.
	was := f.seen[path]
	if was.sum != (Sum{}) && os.SameFile(was.info, info) && was.info.Size() == info.Size() &&
		was.info.ModTime().Equal(info.ModTime()) && was.at.Sub(info.ModTime()) > oldEnough {
		return was
	}

	_, sum, err := Read(path)
	if err != nil {
		return seen{}
	}
	return seen{info, now, sum}
}
