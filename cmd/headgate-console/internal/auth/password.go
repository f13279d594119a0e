package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"

	zxcvbn "github.com/ccojocar/zxcvbn-go"
	"golang.org/x/crypto/argon2"
)

// Bounds of a password.
const (
	MinPassword = 12  // characters
	MaxPassword = 256 // bytes
)

const (
	minScore    = 2 // of zxcvbn, which has 0 to 4
	minDistinct = 5 // characters

	// maxEstimate is how many bytes of a password zxcvbn looks at, as its time grows faster
	// than the password.
	maxEstimate = 64
)

const (
	saltSize = 16
	hashSize = 32

	// maxMemory and maxTime bound what a stored hash may ask for.
	maxMemory = 1 << 20
	maxTime   = 64
)

// Cost is the work of hashing a password.
type Cost struct {
	Memory uint32 // KiB
	Time   uint32 // passes over the memory
}

// DefaultCost is argon2id with 19 MiB and two passes.
var DefaultCost = Cost{Memory: 19 * 1024, Time: 2}

// Passwords hashes and checks passwords with argon2id. It is safe for concurrent
// use. It runs at most GOMAXPROCS hashes at the same time, so that a flood of
// attempts cannot exhaust the memory.
type Passwords struct {
	cost  Cost
	slots chan struct{}
	dummy string // the hash of a random password, for users who do not exist
}

// NewPasswords returns a Passwords that hashes at a cost, which is at least 8 KiB
// and one pass.
func NewPasswords(cost Cost) (*Passwords, error) {
	if cost.Memory < 8 || cost.Memory > maxMemory || cost.Time < 1 || cost.Time > maxTime {
		return nil, fmt.Errorf("the cost %d KiB and %d passes is not within 8 to %d and 1 to %d",
			cost.Memory, cost.Time, maxMemory, maxTime)
	}
	p := &Passwords{cost: cost, slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
	var err error
	p.dummy, err = p.Hash(context.Background(), NewSecret())
	return p, err
}

// CheckPassword returns an error if a new password is not acceptable.
func CheckPassword(user, password string) error {
	switch {
	case utf8.RuneCountInString(password) < MinPassword:
		return fmt.Errorf("it is shorter than %d characters", MinPassword)
	case len(password) > MaxPassword:
		return fmt.Errorf("it is longer than %d bytes", MaxPassword)
	case !utf8.ValidString(password):
		return errors.New("it is not UTF-8")
	case strings.EqualFold(user, password):
		return errors.New("it is the name of the user")
	case guessable(user, password):
		return errors.New("it is easy to guess; some words that have nothing to do with each other are better")
	}
	return nil
}

// guessable reports whether zxcvbn finds a password within some ten million guesses: a common
// one, a name, a run on the keyboard, a year, a repetition, or few of them in a row.
func guessable(user, password string) bool {
	distinct := map[rune]bool{}
	for _, c := range password {
		distinct[c] = true
	}
	if len(distinct) < minDistinct { // zxcvbn sees bytes, and no repetition of other scripts
		return true
	}

	beginning := password
	if len(beginning) > maxEstimate {
		beginning = strings.ToValidUTF8(beginning[:maxEstimate], "")
	}

	ownWords := append(strings.FieldsFunc(user, isSeparator), user, "headgate", "console")
	return zxcvbn.PasswordStrength(beginning, ownWords).Score < minScore
}

func isSeparator(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) }

// Hash returns the text to store for a password. It fails only if ctx ends while
// other hashes run.
func (p *Passwords) Hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt)
	sum, err := p.hashInTurn(ctx, password, salt, p.cost, hashSize)
	if err != nil {
		return "", err
	}
	return encodeHash(p.cost, salt, sum), nil
}

// Matches reports whether a password is the one whose hash was stored. With the
// hash "", for a user who does not exist, it returns false and takes as long.
func (p *Passwords) Matches(ctx context.Context, stored, password string) (bool, error) {
	// A user who does not exist takes as long as one who does, so that the time reveals no names.
	known := stored != ""
	if !known {
		stored = p.dummy
	}

	if len(password) > MaxPassword {
		return false, nil
	}

	cost, salt, want, err := decodeHash(stored)
	if err != nil {
		return false, err
	}

	got, err := p.hashInTurn(ctx, password, salt, cost, uint32(len(want)))
	if err != nil {
		return false, err
	}

	return subtle.ConstantTimeCompare(got, want) == 1 && known, nil
}

// hashInTurn waits for a slot and hashes.
func (p *Passwords) hashInTurn(
	ctx context.Context, password string, salt []byte, cost Cost, size uint32,
) ([]byte, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.slots }()
	return argon2.IDKey([]byte(password), salt, cost.Time, cost.Memory, 1, size), nil
}

var hashEncoding = base64.RawStdEncoding

// encodeHash returns a hash in the form of argon2's own tools.
func encodeHash(c Cost, salt, sum []byte) string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=1$%s$%s", argon2.Version, c.Memory, c.Time,
		hashEncoding.EncodeToString(salt), hashEncoding.EncodeToString(sum))
}

var errHash = errors.New("the stored hash of a password is not one of argon2id")

// decodeHash accepts what encodeHash returns, and nothing else. The bounds keep a hash that was
// written into the database by hand from using up the memory or the time.
func decodeHash(s string) (c Cost, salt, sum []byte, err error) {
	var version int
	var rest string
	_, err = fmt.Sscanf(s, "$argon2id$v=%d$m=%d,t=%d,p=1$%s", &version, &c.Memory, &c.Time, &rest)
	if err != nil || c.Memory > maxMemory || c.Time < 1 || c.Time > maxTime {
		return c, nil, nil, errHash
	}

	// What is not in its one form is read otherwise than it is written.
	first, second, _ := strings.Cut(rest, "$")
	salt, _ = hashEncoding.DecodeString(first)
	sum, _ = hashEncoding.DecodeString(second)
	if len(sum) != hashSize || encodeHash(c, salt, sum) != s {
		return c, nil, nil, errHash
	}
	return c, salt, sum, nil
}
