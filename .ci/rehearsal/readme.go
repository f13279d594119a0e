package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

var (
	fence   = regexp.MustCompile("(?ms)^```go\n(.*?)^```")
	listens = regexp.MustCompile(`"(127\.0\.0\.1)?:8080"`)
)

// firstProgram returns the first Go program of a page, which has to serve HTTP on
// port 8080 by net/http.
func firstProgram(page string) (string, error) {
	data, err := os.ReadFile(page)
	if err != nil {
		return "", err
	}
	for _, block := range fence.FindAllStringSubmatch(string(data), -1) {
		program := block[1]
		if !strings.HasPrefix(program, "package main\n") {
			continue
		}
		if !strings.Contains(program, `"`+root+`/nethttp"`) || !listens.MatchString(program) {
			return "", fmt.Errorf("%s: the first program does not serve on port 8080 through nethttp", page)
		}
		return program, nil
	}
	return "", fmt.Errorf("%s: there is no Go program", page)
}
