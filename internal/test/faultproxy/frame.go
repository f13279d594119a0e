// This file reads RESP2 and RESP3.

package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// maxBlob bounds a blob, as Redis does by default.
const maxBlob = 512 << 20

var errFrame = errors.New("not RESP")

// readFrame reads one value of RESP2 or RESP3, with the values in it, and
// appends its bytes to dst. An attribute comes with the value that it is about.
func readFrame(r *bufio.Reader, dst []byte) ([]byte, error) {
	for values := 1; values > 0; values-- {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return dst, err
		}
		dst = append(dst, line...)

		// An aggregate says how many values are in it: two for each pair of a map, and with an
		// attribute also the value that it is about.
		n := 0
		switch line[0] {
		case '$', '!', '=':
			dst, err = readBlob(r, dst, line)
		case '*', '~', '>':
			n, err = length(line)
		case '%':
			n, err = length(line)
			n *= 2
		case '|':
			n, err = length(line)
			n = n*2 + 1
		case '+', '-', ':', '_', ',', '#', '(':
		default:
			return dst, errFrame
		}
		if err != nil {
			return dst, err
		}

		values += max(0, n) // the null of RESP2 has the length -1
	}
	return dst, nil
}

// readBlob reads the blob after the line with its length; -1 is the null of
// RESP2.
func readBlob(r *bufio.Reader, dst, line []byte) ([]byte, error) {
	n, err := length(line)
	if err != nil || n < 0 {
		return dst, err
	}
	at := len(dst)
	dst = append(dst, make([]byte, n+2)...)
	_, err = io.ReadFull(r, dst[at:])
	return dst, err
}

// length returns the number on a line such as "*3\r\n".
func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimRight(line[1:], "\r\n")))
	if err != nil || n < -1 || n > maxBlob {
		return 0, errFrame
	}
	return n, nil
}

// readCommand reads a command: an array of blobs, or words on one line.
func readCommand(r *bufio.Reader) ([]byte, error) {
	first, err := r.Peek(1)
	if err != nil {
		return nil, err
	}
	if first[0] == '*' {
		return readFrame(r, nil)
	}
	return r.ReadBytes('\n')
}

// commandName returns the first word of a command in capitals.
func commandName(command []byte) string {
	if len(command) == 0 || command[0] != '*' {
		word, _, _ := strings.Cut(strings.TrimSpace(string(command)), " ")
		return strings.ToUpper(word)
	}
	lines := bytes.SplitN(command, []byte("\r\n"), 4)
	if len(lines) < 4 {
		return ""
	}
	return strings.ToUpper(string(lines[2]))
}

// isScript reports whether the command runs a script.
func isScript(name string) bool {
	switch name {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO":
		return true
	}
	return false
}

// isStream reports whether commands and replies no longer come in pairs after the
// command.
func isStream(name string) bool {
	switch name {
	case "PSYNC", "SYNC", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR":
		return true
	}
	return false
}
