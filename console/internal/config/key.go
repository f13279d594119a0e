package config

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/headgate/headgate/console/internal/store"
)

// maxKeyFile is more than the length of any key.
const maxKeyFile = 1024

// secretKey returns the key of the secrets in the database, or "" for none. Its errors do not
// repeat what it finds.
func (g *given) secretKey(env func(string) string) (string, error) {
	name, text := EnvKey, env(EnvKey)
	if g.keyFile != "" {
		file, err := os.Open(g.keyFile)
		if err != nil {
			return "", fmt.Errorf("-key-file: %w", err)
		}
		defer file.Close()
		data, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
		if err != nil {
			return "", fmt.Errorf("-key-file: %w", err)
		}
		name, text = "-key-file", string(data)
	} else if text == "" {
		return "", nil
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) != store.KeySize {
		return "", fmt.Errorf("%s: it is not %d bytes in base64, such as openssl rand -base64 %[2]d prints", name, store.KeySize)
	}
	return string(key), nil
}
