package fasthttpexchange

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/internal/target"
)

// Path returns the path that Fiber routes by, so that all spellings that reach one handler are
// one path. It is a copy of path, which is that of Fiber's context.
func Path(path string, strictRouting, caseSensitive bool) string {
	if !strictRouting && len(path) > 1 {
		path = strings.TrimRight(path, "/")
	}
	if caseSensitive {
		return strings.Clone(path)
	}
	return lower(path)
}

// lower returns a copy with the letters A to Z in lower case. Fiber folds no other
// letters.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// SentPath returns the path that the client sent if path is another, because a handler has set
// it since, and "" otherwise.
func SentPath(ctx *fasthttp.RequestCtx, path string) string {
	sent := ctx.Request.Header.RequestURI()
	if rest, ok := bytes.CutPrefix(sent, []byte(path)); ok && (len(rest) == 0 || rest[0] == '?') {
		return ""
	}
	return target.OtherThan(path, string(sent))
}

// RawQuery returns a copy of the query as the client encoded it.
func RawQuery(ctx *fasthttp.RequestCtx) string { return string(ctx.URI().QueryString()) }

// Context returns the context that user returns for a request. Fiber v2 leaves a value in each
// request that is asked so and has none, so one without any values is not asked.
func Context(ctx *fasthttp.RequestCtx, user func() context.Context) context.Context {
	has := false
	ctx.VisitUserValuesAll(func(any, any) { has = true })
	if has {
		return user()
	}
	return context.Background()
}

// RemoteAddr returns the peer in the form that net/http gives it.
func RemoteAddr(ctx *fasthttp.RequestCtx) string {
	if peer := RemoteAddrPort(ctx); peer.IsValid() {
		return peer.String()
	}
	return ctx.RemoteAddr().String()
}

// RemoteAddrPort returns the peer of a TCP connection, and no address for another connection.
func RemoteAddrPort(ctx *fasthttp.RequestCtx) netip.AddrPort {
	tcp, ok := ctx.RemoteAddr().(*net.TCPAddr)
	if !ok || tcp == nil {
		return netip.AddrPort{}
	}
	ip, _ := netip.AddrFromSlice(tcp.IP)
	if ip = ip.Unmap(); tcp.Zone != "" {
		ip = ip.WithZone(tcp.Zone)
	}
	return netip.AddrPortFrom(ip, uint16(tcp.Port))
}

// Header returns copies of the lines of a header other than Host.
func Header(ctx *fasthttp.RequestCtx, name string) []string {
	lines := ctx.Request.Header.PeekAll(name)
	if len(lines) == 0 {
		return nil
	}
	copies := make([]string, len(lines))
	for i, line := range lines {
		copies[i] = string(line)
	}
	return copies
}

// Hosts returns the host asked for; the host of the request line takes precedence. It also
// returns that which Fiber read if that is another, as it is if Fiber reads X-Forwarded-Host.
func Hosts(ctx *fasthttp.RequestCtx, read string) []string {
	sent := string(ctx.URI().Host())
	if read == sent {
		return []string{sent}
	}
	return []string{sent, strings.Clone(read)}
}
