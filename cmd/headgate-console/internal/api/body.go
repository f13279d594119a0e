package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// maxBody is the largest number of bytes of a body, except for imports.
const maxBody = 64 << 10

// body reads a body of one of the media types, and returns it with its type.
func (c *call) body(maxBytes int64, types ...string) ([]byte, string, error) {
	media, parameters, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	charset, named := parameters["charset"]
	if err != nil || !slices.Contains(types, media) || named && !strings.EqualFold(charset, "utf-8") {
		return nil, "", newProblem(http.StatusUnsupportedMediaType, "media-type",
			"the Content-Type of the body has to be "+strings.Join(types, " or ")+", in UTF-8")
	}

	// A small body could become a large one when it is unpacked.
	if encoding := c.r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, "", newProblem(http.StatusUnsupportedMediaType, "media-type", "the body must not be compressed")
	}

	// A body that is cut off is refused, even if what has arrived could be read.
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBytes))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, "", newProblem(http.StatusRequestEntityTooLarge, "too-large",
			fmt.Sprintf("the body has more than %d bytes", maxBytes))
	}
	if err != nil {
		return nil, "", malformed("the body ends too early")
	}

	return b, media, nil
}

// decode reads a JSON body into a struct.
func (c *call) decode(into any) error {
	b, _, err := c.body(maxBody, "application/json")
	if err != nil {
		return err
	}
	return decodeStrictly(b, into)
}

func malformed(detail string) *problem {
	return newProblem(http.StatusBadRequest, "malformed", detail)
}
