package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
)

// send answers with a value as JSON.
func (c *call) send(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	c.w.Write(append(b, '\n'))
	return nil
}

// sendTagged answers with a value, or with 304 if the client has it under its tag.
// The tag "" stands for a digest of the answer.
func (c *call) sendTagged(v any, tag string) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}

	// A digest is that of the JSON, and the answer may be compressed, so the tag is a weak one.
	if tag == "" {
		sum := sha256.Sum256(b)
		tag = `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	}

	c.w.Header().Set("ETag", tag)
	if unchanged(c.r, tag) {
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}

	return c.send(http.StatusOK, json.RawMessage(b))
}

// nothing answers 204, or with the error.
func (c *call) nothing(err error) error {
	if err == nil {
		c.w.WriteHeader(http.StatusNoContent)
	}
	return err
}
