// This file replays logs in the shape of two that are public.

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// publicLog is a log, and what is true of it.
type publicLog struct {
	text     strings.Builder
	requests int64
	broken   int64
	byHour   map[string]int64 // requests of a caller in an hour
	callers  map[string]bool
	x        uint32
}

func (p *publicLog) random(n int) int {
	p.x = p.x*1664525 + 1013904223
	return int(p.x>>8) % n
}

// add adds a line of a caller. A line that is broken has no request.
func (p *publicLog) add(caller string, at time.Time, broken bool, line string) {
	p.text.WriteString(line + "\n")
	if broken {
		p.broken++
		return
	}
	p.requests++
	p.callers[caller] = true
	p.byHour[caller+at.UTC().Format(" 2006-01-02 15")]++
}

// over returns how many requests are over a quota of each caller in each hour.
func (p *publicLog) over(quota int64) (n int64) {
	for _, requests := range p.byHour {
		n += max(0, requests-quota)
	}
	return n
}

// spaceCenter is a log as that of NASA's server of July 1995: the common form, with the names of
// hosts in the place of most addresses, in summer time.
func spaceCenter() *publicLog {
	p := &publicLog{byHour: map[string]int64{}, callers: map[string]bool{}, x: 7}
	pages := []string{"GET /history/apollo/ HTTP/1.0", "GET /shuttle/countdown/ HTTP/1.0", "GET /images/NASA.gif",
		"GET /cgi-bin/imagemap/countdown?99,176 HTTP/1.0", "GET /images/ Magellan.gif HTTP/1.0", "HEAD / HTTP/1.0",
		"POST /cgi-bin/newwais.pl HTTP/1.0", "GET http://www.ksc.nasa.gov/shuttle/ HTTP/1.0"}
	noRequests := []string{`""`, `"1/history/apollo/images/"`, `"k\x83tx\x83tG"`, `"GET /a"><IMG HTTP/1.0"`, `"GET /`}

	at := time.Date(1995, 7, 1, 0, 0, 1, 0, time.FixedZone("", -4*3600))
	for range 20_000 {
		at = at.Add(time.Duration(p.random(3)) * time.Second)
		n := p.random(300) * p.random(300) / 300 // some come often
		host := fmt.Sprintf("ppp%d.Dialup.example.net", n)
		switch {
		case n%4 == 0:
			host = fmt.Sprintf("199.72.%d.%d", n/250, n%250)
		case p.random(2) == 0: // a name is the same in small letters
			host = strings.ToLower(host)
		}

		caller, stamp := strings.ToLower(host), at.Format("02/Jan/2006:15:04:05 -0700")
		if p.random(50) == 0 {
			request := noRequests[p.random(len(noRequests))]
			p.add(caller, at, true, fmt.Sprintf("%s - - [%s] %s 400 -", host, stamp, request))
			continue
		}
		size := fmt.Sprint(p.random(60_000))
		if p.random(20) == 0 {
			size = "-"
		}
		p.add(caller, at, false, fmt.Sprintf("%s - - [%s] \"%s\" %d %s", host, stamp, pages[p.random(len(pages))],
			[]int{200, 200, 304, 302, 404}[p.random(5)], size))
	}

	p.add("", at, true, "alyssa.p") // as the file ends
	return p
}

// blog is a log as the sample of a blog that Elastic's examples have: combined lines, of which each
// hour has a minute, whose lines are in no order.
func blog() *publicLog {
	p := &publicLog{byHour: map[string]int64{}, callers: map[string]bool{}, x: 9}
	agents := []string{"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36 (KHTML, like Gecko)", "-",
		`Tiny Tiny RSS/1.11 (http://tt-rss.org/)`, `a \"quoted\" \\ bot`, "\u00fcber/1.0"}

	start := time.Date(2015, 5, 17, 10, 5, 0, 0, time.UTC)
	for hour := range 80 {
		for range 250 {
			at := start.Add(time.Duration(hour)*time.Hour + time.Duration(p.random(60))*time.Second)
			n := p.random(200) * p.random(200) / 200
			caller := fmt.Sprintf("83.149.%d.%d", n/200, n%200)
			if n%5 == 0 {
				caller = fmt.Sprintf("2001:db8:%x::", n)
				caller = caller + "/64"
			}
			address := strings.Replace(caller, "::/64", fmt.Sprintf("::%x", 1+p.random(99)), 1)

			line := fmt.Sprintf(`%s - - [%s] "GET /presentations/%d.png HTTP/1.1" 200 %d "http://semicomplete.com/" "%s"`,
				address, at.Format("02/Jan/2006:15:04:05 -0700"), p.random(99), p.random(9999),
				agents[p.random(len(agents))])
			switch p.random(60) {
			case 0: // cut off
				p.add(caller, at, true, line[:len(address)+20])
			case 1: // a time that does not exist
				p.add(caller, at, true, strings.Replace(line, "May", "Mai", 1))
			case 2: // a handshake of TLS on a port without it
				p.add(caller, at, true, strings.Replace(line, "GET ", `\x16\x03\x01`, 1))
			default:
				p.add(caller, at, false, line)
			}
		}
	}
	return p
}

// What plan and suggest say of both logs is what the logs are made of.
func TestLogsInTheShapeOfPublicOnes(t *testing.T) {
	const quota = 9
	policies := file(t, "limits.yaml", fmt.Sprintf(
		"policies:\n- {name: hourly, apps: [a], limit: %d/1h fixed-window aligned, key: ip}\n", quota))

	for name, row := range map[string]struct {
		log     *publicLog
		reorder string
	}{"space center": {spaceCenter(), "5s"}, "blog": {blog(), "1m"}} {
		t.Run(name, func(t *testing.T) {
			log := file(t, "access.log", row.log.text.String())
			var plan planResult
			out := call(t, "", "plan", "-json", "-policies", policies, "-reorder", row.reorder, log).want(t, fine).out
			if err := json.Unmarshal([]byte(out), &plan); err != nil {
				t.Fatal(err)
			}

			read := plan.Logs[0]
			got := []int64{plan.Requests, read.Broken, plan.Callers, plan.Refused, read.Late, plan.Undecided}
			want := []int64{row.log.requests, row.log.broken, int64(len(row.log.callers)), row.log.over(quota), 0, 0}
			if fmt.Sprint(got) != fmt.Sprint(want) || read.Format != "combined" || want[1] < 100 || want[3] < 100 {
				t.Errorf("%v of %s, want %v: requests, broken lines, callers, refusals", got, read.Format, want)
			}

			var list suggestResult
			out = call(t, "", "suggest", "-json", "-touch", "5%", "-period", "1h", "-reorder", row.reorder, log).
				want(t, fine).out
			if err := json.Unmarshal([]byte(out), &list); err != nil {
				t.Fatal(err)
			}
			most := int64(len(row.log.callers)) / 20
			for _, x := range list.Suggestions {
				if list.Callers != want[2] || x.Touched > most || *x.Refused == 0 {
					t.Errorf("%+v of %d callers, want at most %d of %d", x, list.Callers, most, want[2])
				}
			}
		})
	}

	// What is sorted too little is told.
	log := file(t, "access.log", blog().text.String())
	call(t, "", "plan", "-policies", policies, log).want(t, fine, "lines are more than 5s out of order")
}
