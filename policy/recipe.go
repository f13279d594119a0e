// This file reads the text form of keys.

package policy

import (
	"errors"
	"fmt"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/textform"
)

// maxParts is the maximum number of parts of a recipe.
const maxParts = 6

// recipePart is one of the recipes that "+" joins.
type recipePart struct {
	kind string // the text before ":" or "/"
	name string // of a header, in canonical form, or of a cookie
	bits int    // of ip/56
}

// parseRecipe reads Policy.Key. Its error names everything that is wrong.
func parseRecipe(s string) ([]recipePart, error) {
	if s == "" {
		return nil, errors.New(`it is empty; write, say, "ip", or "global" for one count for all`)
	}

	texts := strings.Split(s, "+")
	if len(texts) > maxParts {
		return nil, fmt.Errorf("%d recipes joined are more than %d", len(texts), maxParts)
	}

	var errs []error
	parts := make([]recipePart, len(texts))
	for i, text := range texts {
		p, err := parseRecipePart(text)
		if err == nil && p.kind == "global" && len(texts) > 1 {
			err = errors.New(`"global" joined to another recipe means nothing`)
		}

		// A part that has a mistake already is not compared: each part has at most one.
		for _, other := range parts[:i] {
			if err == nil && other == p {
				err = fmt.Errorf("%q is repeated", textform.Clip(text))
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
		parts[i] = p
	}
	return parts, errors.Join(errs...)
}

func parseRecipePart(text string) (recipePart, error) {
	switch text {
	case "ip", "user", "api-key", "basic-auth", "route", "method", "path", "host", "global":
		return recipePart{kind: text}, nil
	}

	if bits, ok := strings.CutPrefix(text, "ip/"); ok {
		n, err := strconv.Atoi(bits)
		if err != nil || n < 32 || n > 128 || strconv.Itoa(n) != bits {
			return recipePart{}, fmt.Errorf("%q: the IPv6 prefix is not a number within 32 to 128", textform.Clip(text))
		}
		return recipePart{kind: "ip", bits: n}, nil
	}

	if name, ok := strings.CutPrefix(text, "header:"); ok {
		return recipePart{"header", textproto.CanonicalMIMEHeaderKey(name), 0}, checkHeader(name)
	}
	if name, ok := strings.CutPrefix(text, "cookie:"); ok {
		if !isToken(name) {
			return recipePart{}, fmt.Errorf("%q is not the name of a cookie", textform.Clip(name))
		}
		return recipePart{"cookie", name, 0}, nil
	}

	err := fmt.Errorf("the recipe %q is not known", textform.Clip(text))
	if meant := meantRecipe(text); meant != "" {
		err = fmt.Errorf("%w; write %q", err, meant)
	}
	return recipePart{}, err
}

// meantRecipe returns the recipe of a text that has other letters, or the name that it has
// elsewhere, or "".
func meantRecipe(text string) string {
	kind, name, named := strings.Cut(strings.TrimSpace(text), ":")
	kind = strings.ReplaceAll(strings.ToLower(kind), "_", "-")

	switch kind {
	case "address", "addr", "client-ip", "remote-ip", "remote-addr":
		kind = "ip"
	case "apikey", "x-api-key":
		kind = "api-key"
	case "bearer", "bearer-token", "authorization":
		kind = "header:Authorization"
	case "user-id", "username":
		kind = "user"
	case "url", "uri":
		kind = "path"
	case "hostname", "domain":
		kind = "host"
	case "all", "any", "none", "*":
		kind = "global"
	}

	if named {
		kind += ":" + strings.TrimSpace(name)
	}

	// A guess is worth saying only if it is right.
	if kind == text {
		return ""
	}
	if _, err := parseRecipePart(kind); err != nil {
		return ""
	}
	return kind
}

// checkHeader refuses texts that are no name of a header, and headers by which a policy must not
// count: those whose addresses only the program may trust, those that have a recipe of their own,
// and those that no handler sees.
func checkHeader(name string) error {
	if !isToken(name) {
		return fmt.Errorf("%q is not the name of a header", textform.Clip(name))
	}

	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "X-Forwarded-For", "X-Original-Forwarded-For", "Forwarded", "Forwarded-For", "X-Forwarded",
		"X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "X-Cluster-Client-Ip", "Cf-Connecting-Ip",
		"Fastly-Client-Ip", "X-Envoy-External-Address":
		return fmt.Errorf(`the header %s names addresses, which only the program may trust; write "ip"`, name)
	case "Host":
		return errors.New(`the header Host has its own recipe; write "host"`)
	case "Cookie":
		return errors.New(`the header Cookie holds all cookies; write, say, "cookie:sid"`)
	}

	return checkReadable(name)
}

// checkReadable refuses headers that no handler sees.
func checkReadable(name string) error {
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Transfer-Encoding", "Trailer":
		return fmt.Errorf("the header %s belongs to the connection, and servers take it out", name)
	}
	return nil
}

// isToken reports whether s is a token of RFC 9110 of at most 64 bytes.
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte("!#$%&'*-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != "" && len(s) <= 64
}
