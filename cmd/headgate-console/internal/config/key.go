package config

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// maxKeyFile is the largest number of bytes of a file of keys, room for some ninety.
const maxKeyFile = 4096

// secretKeys returns the key of the secrets in the database and the former ones, or none. Its
// errors do not repeat what it finds.
func (g *given) secretKeys(env func(string) string) (keys [][]byte, err error) {
	name, text := EnvKey, env(EnvKey)
	if g.keyFile != "" {
		// A flag comes before the variable.
		file, err := os.Open(g.keyFile)
		if err != nil {
			return nil, fmt.Errorf("-key-file: %w", err)
		}
		defer file.Close()

		// One byte more than is allowed shows that a file is too long, without reading all of it.
		data, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
		if err != nil {
			return nil, fmt.Errorf("-key-file: %w", err)
		}
		if len(data) > maxKeyFile {
			return nil, fmt.Errorf("-key-file: it has more than %d bytes", maxKeyFile)
		}

		name, text = "-key-file", string(data)
	} else if text == "" {
		return nil, nil
	}

	for i, field := range strings.Fields(text) {
		key, err := base64.StdEncoding.DecodeString(field)
		if err != nil || len(key) != store.KeySize {
			return nil, fmt.Errorf("%s: the key number %d is not %d bytes in base64, "+
				"such as openssl rand -base64 %[3]d prints", name, i+1, store.KeySize)
		}
		keys = append(keys, key)
	}

	if keys == nil {
		return nil, fmt.Errorf("%s: there is no key", name)
	}
	return keys, nil
}
