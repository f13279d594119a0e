package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"strings"
)

//go:embed static
var files embed.FS

// static serves the style sheet, the script, the icon and the letters. Browsers cache them and
// revalidate them.
func static() http.Handler {
	tags := map[string]string{}

	list, _ := files.ReadDir("static") // an embedded file can always be read
	for _, f := range list {
		data, _ := files.ReadFile("static/" + f.Name())
		sum := sha256.Sum256(data)
		tags[f.Name()] = `W/"` + // weak, as the file may be compressed
			hex.EncodeToString(sum[:8]) + `"`
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("file")
		tag, known := tags[name]
		if !known {
			http.NotFound(w, r)
			return
		}

		// no-cache means that the browser asks each time, and gets a 304 while the file is the
		// same. A new version is in use at once.
		w.Header().Set("Cache-Control", "no-cache")
		if strings.HasSuffix(name, ".woff2") { // whose name has its version
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		w.Header().Set("ETag", tag)
		http.ServeFileFS(w, r, files, "static/"+name)
	})
}
