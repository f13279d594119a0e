package main

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// distances are the round trips to Redis. At 0 the proxy alone is added.
var distances = []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond}

// distant are the peers of the tables of distances.
var distant = []string{ours, oursRueidis, redisRate, rueidisRate, ululeRedis}

// distanceRounds is how many rounds the tables of distances have: each takes as long as the
// round trips.
const distanceRounds = 3

// distanceSection measures limiters in a Redis that is far away: behind one proxy for all, which
// hands bytes on after half a round trip in either direction.
func distanceSection(p pace) ([]Table, error) {
	addr, stop, err := startRedis()
	if errors.Is(err, errNoRedis) {
		none := Table{ID: "distance", Title: "Far from Redis: not measured", Note: "redis-server is not in PATH."}
		return []Table{none}, nil
	}
	if err != nil {
		return nil, err
	}
	defer stop()

	var columns []string
	for _, n := range callers {
		columns = append(columns, fmt.Sprint(n))
	}
	note := fmt.Sprintf("Medians of %d interleaved rounds, by the round trip through a proxy, which alone is added "+
		"at 0 ms.", distanceRounds)
	speed := newTable("distance", "Far from Redis: decisions a second by number of callers", note, columns, nil)
	half := newTable("distance-p50", "Far from Redis: µs a decision, 50th percentile", "", columns, nil)
	most := newTable("distance-p99", "Far from Redis: µs a decision, 99th percentile", "", columns, nil)

	for _, d := range distances {
		for i, n := range callers {
			list, err := fromAfar(addr, d, n, p)
			if err != nil {
				return nil, err
			}
			for _, o := range list {
				o.name = fmt.Sprintf("%s, %d ms", o.name, d.Milliseconds())
				speed.enter(i, []outcome{o.upto(1)})
				half.enter(i, []outcome{o.from(1).upto(1)})
				most.enter(i, []outcome{o.from(2)})
			}
		}
	}
	return []Table{*speed, *half, *most}, nil
}

// fromAfar has n callers of each peer ask a server at a distance.
func fromAfar(addr string, d time.Duration, n int, p pace) ([]outcome, error) {
	proxy, err := startDelay(addr, d/2)
	if err != nil {
		return nil, err
	}
	defer proxy.stop()

	// A store finds out in some round trips how far its server is, and a caller needs some for a
	// median.
	warmup, round := max(p.round/4, 10*d), max(3*p.round, 25*d)
	list, closeAll := contenders(redisPeersOf(distant...), proxy.addr, n, warmup, round)
	defer closeAll()
	return contest(list, min(p.rounds, distanceRounds)), nil
}

// delay is a proxy that hands on what it reads after a while, however much that is.
type delay struct {
	addr     string
	listener net.Listener
	server   string
	oneWay   time.Duration

	mu     sync.Mutex
	conns  []net.Conn // guarded by mu
	closed bool       // guarded by mu
}

// startDelay starts a proxy before the server on a free loopback port.
func startDelay(server string, oneWay time.Duration) (*delay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &delay{addr: l.Addr().String(), listener: l, server: server, oneWay: oneWay}
	go d.accept()
	return d, nil
}

func (d *delay) accept() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}

		server, err := net.Dial("tcp", d.server)
		if err != nil || !d.keep(client, server) {
			client.Close()
			continue
		}
		go d.pump(server, client)
		go d.pump(client, server)
	}
}

// keep keeps the two connections until stop, or closes them after it.
func (d *delay) keep(client, server net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		server.Close()
		return false
	}
	d.conns = append(d.conns, client, server)
	return true
}

// stop closes the proxy and its connections.
func (d *delay) stop() {
	d.listener.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, c := range d.conns {
		c.Close()
	}
}

// chunk is what was read at once.
type chunk struct {
	bytes []byte
	due   time.Time // when it is handed on
}

// underWay is how many chunks of one connection and direction may be under way: more than the
// callers have.
const underWay = 4096

// pump hands on what it reads from one connection to the other. Reading goes on while earlier
// bytes wait.
func (d *delay) pump(to, from net.Conn) {
	waiting := make(chan chunk, underWay)
	go func() {
		defer to.Close()
		for c := range waiting {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.bytes); err != nil {
				from.Close() // ends the reading
				for range waiting {
				}
				return
			}
		}
	}()

	defer close(waiting)
	for {
		b := make([]byte, 16<<10)
		n, err := from.Read(b)
		if n > 0 {
			waiting <- chunk{b[:n], time.Now().Add(d.oneWay)}
		}
		if err != nil {
			return
		}
	}
}
