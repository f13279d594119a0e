package keyfuncs

import "strings"

// form is one way to write an address, and the properties that the test expects. The tables below
// are the oracle: no code parses them.
type form struct {
	text    string
	key     string // what it is counted as; "" if it is not an address
	trusted bool   // whether it lies in trustedProxies
}

// trustedProxies is the trust list of the corpus.
var trustedProxies = []string{"10.0.0.0/8", "::ffff:192.0.2.200", "fd00:10::/32", "2001:db8:aaaa::1",
	"::ffff:172.16.0.0/108"}

// ipv4Hosts are IPv4 addresses in both writings that IPv6 has for them.
var ipv4Hosts = []struct {
	dotted, hex, full string
	trusted           bool
}{
	{"203.0.113.7", "cb00:7107", "cb00:7107", false},
	{"198.51.100.200", "c633:64c8", "c633:64c8", false},
	{"8.8.8.8", "808:808", "0808:0808", false},
	{"127.0.0.1", "7f00:1", "7f00:0001", false},
	{"192.0.2.201", "c000:2c9", "c000:02c9", false},
	{"11.0.0.1", "b00:1", "0b00:0001", false},
	{"10.1.2.3", "a01:203", "0a01:0203", true},
	{"10.255.255.255", "aff:ffff", "0aff:ffff", true},
	{"192.0.2.200", "c000:2c8", "c000:02c8", true},
	{"172.31.0.9", "ac1f:9", "ac1f:0009", true},
}

// ipv4Forms lists how an IPv4 host can be written; D, X and F stand for its
// writings.
var ipv4Forms = []struct {
	text  string
	nat64 bool // counted as the host, but not trusted as it
}{
	{"D", false},
	{"D:80", false},
	{"D:65535", false},
	{"::ffff:D", false},
	{"::FFFF:D", false},
	{"::ffff:X", false},
	{"0:0:0:0:0:ffff:D", false},
	{"0000:0000:0000:0000:0000:FFFF:F", false},
	{"[::ffff:D]", false},
	{"[::ffff:D]:4711", false},
	{"::ffff:D:4711", false},
	{"0:0:0:0:0:ffff:X:4711", false},
	{"[::fFfF:X]:1", false},
	{"::ffff:D%eth0", false},
	{"[::ffff:X%25en1]:80", false},
	{"64:ff9b::D", true},
	{"64:ff9b::X", true},
	{"[64:FF9B::D]:80", true},
	{"64:ff9b::D:80", true},
	{"0064:ff9b:0000:0000:0000:0000:F", true},
	{"64:ff9b::X%wan", true},
}

// ipv6Forms are IPv6 addresses in many writings.
var ipv6Forms = []form{
	{"2001:db8:1:2::1", "2001:db8:1:2::/64", false},
	{"2001:DB8:1:2::1", "2001:db8:1:2::/64", false},
	{"2001:0db8:0001:0002:0000:0000:0000:0001", "2001:db8:1:2::/64", false},
	{"2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64", false},
	{"2001:db8:1:2:0:0:1.2.3.4", "2001:db8:1:2::/64", false},
	{"[2001:db8:1:2::1]", "2001:db8:1:2::/64", false},
	{"[2001:db8:1:2::1]:443", "2001:db8:1:2::/64", false},
	{"[2001:db8:1:2:dead:beef:CAFE:f00d]:65535", "2001:db8:1:2::/64", false},
	{"2001:db8:1:2::1%eth0", "2001:db8:1:2::/64", false},
	{"[2001:db8:1:2::1%evil{}]:80", "2001:db8:1:2::/64", false},
	{"2001:db8:1:3::", "2001:db8:1:3::/64", false},
	{"2001:db8:1:2::1:80", "2001:db8:1:2::/64", false},
	{"2001:db8:1:2:3:4:5:6:4711", "2001:db8:1:2::/64", false},
	{"2001:db8:1:2:3:4:5:6:0", "2001:db8:1:2::/64", false},
	{"2001:db8:1:2::1:65535", "2001:db8:1:2::/64", false},
	{"2001:db8:1:2:3:4:1.2.3.4:80", "2001:db8:1:2::/64", false},
	{"2001:db8:aaaa:0:0:0:0:1:80", "2001:db8:aaaa::/64", true},
	{"2001:db8:aaaa::1:47110", "2001:db8:aaaa::/64", true},
	{"fd00:10::7:47110", "fd00:10::/64", true},
	{"2001:db8::", "2001:db8::/64", false},
	{"2001:db8::1", "2001:db8::/64", false},
	{"2001:db8::1:0:0:0:0", "2001:db8:0:1::/64", false},
	{"2001:db8:0:1::", "2001:db8:0:1::/64", false},
	{"2001:db8:aaaa::2", "2001:db8:aaaa::/64", false},
	{"2001:db8:aaaa::1", "2001:db8:aaaa::/64", true},
	{"[2001:DB8:AAAA:0:0:0:0:1]:9", "2001:db8:aaaa::/64", true},
	{"2001:db8:aaaa::1%lan", "2001:db8:aaaa::/64", true},
	{"fd00:10::7", "fd00:10::/64", true},
	{"fd00:10:ffff:ffff:1::7", "fd00:10:ffff:ffff::/64", true},
	{"[fd00:0010::0007]:8080", "fd00:10::/64", true},
	{"[fd00:10::7%eth1]:8080", "fd00:10::/64", true},
	{"fd00:11::7", "fd00:11::/64", false},
	{"fe80::1", "fe80::/64", false},
	{"fe80::1%eth0", "fe80::/64", false},
	{"[fe80::1%eth0]:80", "fe80::/64", false},
	{"::1", "::/64", false},
	{"[::1]:80", "::/64", false},
	{"[::1%]]:80", "::/64", false},
	{"[::1%a]b[]", "::/64", false},
	{"::", "::/64", false},
	{"::10.1.2.3", "::/64", false},
	{"::ffff:0:10.1.2.3", "::/64", false},
	{"::fffe:10.1.2.3", "::/64", false},
	{"2002:a01:203::1", "2002:a01:203::/64", false},
	{"64:ff9b:1::10.1.2.3", "64:ff9b:1::/64", false},
	{"64:ff9b:0:0:1::10.1.2.3", "64:ff9b::/64", false},
	{"64:ff9a::10.1.2.3", "64:ff9a::/64", false},
	{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff::/64", false},
}

// junk lists texts that are not addresses and have no comma.
var junk = []string{
	"", "unknown", "Unknown", "_hidden", "_SEVKISEK", "-", "null", "localhost", "example.com", "example.com:80",
	"1.2.3", "1.2.3.4.5", "1.2.3.", ".1.2.3", "1..3.4", "1.2.3.256", "1.2.3.-4", "01.2.3.4", "1.2.3.04", "0x1.2.3.4",
	"0x01020304", "16909060", "1.2.772", "１.2.3.4", "1.2.3.4 5.6.7.8", "1.2.3.4;5.6.7.8", "1.2.3.4/32", "1.2.3.4%eth0",
	"1.2.3.4:", "1.2.3.4:x", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:+1", "1.2.3.4:000080", "1.2.3.4:80:80", ":80",
	":", "::ffff:1.2.3.4:80:80", "::ffff:1.2.3.4:", "::ffff:1.2.3.4:65536",
	"[1.2.3.4]", "[1.2.3.4]:80", "[", "]", "[]", "[]:80", "[::1", "::1]", "[::1]80", "[::1]:", "[::1]:x",
	"[::1]:99999", "[[::1]]", "[::1]]:80",
	":::", "1::2::3", "12345::1", "g::1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9:10", "1:2:3:4:5:6:7:8:",
	"1:2:3:4:5:6:7:8:x", "1:2:3:4:5:6:7:8:99999", "[1:2:3:4:5:6:7:8:9]", "[1:2:3:4:5:6:7:8]:9:9",
	"1:2:3:4:5:6:7:8::", "::ffff:1.2.3", "::ffff:1.2.3.256", "::ffff:01.2.3.4",
	"::1%", "[::1%]:80", "%eth0", "fe80::1/64", "2001:db8::1 ::1", "\"1.2.3.4\"", "'1.2.3.4'", "<1.2.3.4>",
	"for=1.2.3.4", "1.2.3.4\x00", "\x001.2.3.4", "1.2.3.4\r\n",
	"\xff\xfe", "hello{}:a", "{1.2.3.4}", "%31.2.3.4", "1.2.3.4%00", "١.٢.٣.٤", "1.2.3.4\u200b", "@", "/run/app.sock",
	"pipe",
	strings.Repeat("1", 5000), strings.Repeat("1.", 5000), strings.Repeat(":", 5000), strings.Repeat("[", 5000),
	"::1" + strings.Repeat("0", 900),
}

// forms holds the forms above.
func forms() []form {
	all := append([]form(nil), ipv6Forms...)
	for _, h := range ipv4Hosts {
		for _, f := range ipv4Forms {
			text := strings.NewReplacer("D", h.dotted, "X", h.hex, "FFFF", "FFFF", "FF9B", "FF9B", "fFfF", "fFfF",
				"F", h.full).Replace(f.text)
			all = append(all, form{text, h.dotted, h.trusted && !f.nat64})
		}
	}
	for _, s := range junk {
		all = append(all, form{text: s})
	}
	return all
}
