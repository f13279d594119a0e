package rueidisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

const (
	// slotsStand is how long a table of slots is believed.
	slotsStand = 10 * time.Second

	// doubtedStand is how long one is believed although a command has failed since.
	doubtedStand = 200 * time.Millisecond

	// slotsTimeout bounds a question for the table.
	slotsTimeout = 5 * time.Second

	slotCount = 16384
)

// slots is the table of a Cluster: which master has which slot. rueidis has its own, by which it
// sends commands, and shows it to none.
type slots struct {
	client  *client
	table   atomic.Pointer[table]
	asking  atomic.Bool
	doubted atomic.Bool // a command has failed since the table was asked for
}

// table is the address of the master of each slot, as it was at an instant.
type table struct {
	masters [slotCount]string
	at      time.Time
}

func newSlots(c *client) *slots { return &slots{client: c} }

// doubt has the table asked for soon.
func (s *slots) doubt() { s.doubted.Store(true) }

// server returns the address of the master that has a key, or the keys with a hash tag, or ""
// while no table is known. It has a table asked for in the background if that is due.
func (s *slots) server(keyOrTag string) string {
	t := s.table.Load()
	if t == nil || s.due(time.Since(t.at)) {
		s.refresh()
	}
	if t == nil {
		return ""
	}
	return t.masters[slotOf(keyOrTag)]
}

// due reports whether a table of an age is to be asked for anew.
func (s *slots) due(age time.Duration) bool {
	return age >= slotsStand || age >= doubtedStand && s.doubted.Load()
}

// refresh asks for the table in the background, once at a time.
func (s *slots) refresh() {
	if !s.asking.CompareAndSwap(false, true) {
		return
	}

	go func() {
		defer s.asking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), slotsTimeout)
		defer cancel()
		_, _ = s.ask(ctx)
	}()
}

// ask asks the servers for the table, one after the other, until one has it.
func (s *slots) ask(ctx context.Context) (*table, error) {
	s.doubted.Store(false)

	var errs []error
	// All servers have the same table, so the first that answers will do.
	for addr, node := range s.client.rueidis.Nodes() {
		t, err := s.askOne(ctx, addr, node)
		if err == nil {
			s.table.Store(t)
			return t, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// askOne asks a server for the table. One that hangs gets part of the time.
func (s *slots) askOne(ctx context.Context, addr string, node rueidis.Client) (*table, error) {
	ctx, cancel := context.WithTimeout(ctx, slotsTimeout/10)
	defer cancel()

	m, err := node.Do(ctx, node.B().Arbitrary("CLUSTER", "SLOTS").Blocking()).ToArray()
	if err != nil {
		return nil, err
	}
	own, _, _ := net.SplitHostPort(addr)
	return readTable(m, own)
}

// errTable is the error of a reply that is no table of slots.
var errTable = errors.New("rueidisstore: not a reply to CLUSTER SLOTS")

// readTable reads the reply to CLUSTER SLOTS: ranges, each with its first slot, its last, and its
// nodes, of which the first is the master. A node without a host has that of the server asked.
func readTable(ranges []rueidis.RedisMessage, own string) (*table, error) {
	t := &table{at: time.Now()}
	for _, each := range ranges {
		parts, err := each.ToArray()
		if err != nil || len(parts) < 3 {
			return nil, errors.Join(errTable, err)
		}

		// A number that is none is 0. The check below is for those that lead out of the table.
		first, _ := parts[0].ToInt64()
		last, _ := parts[1].ToInt64()

		node, err := parts[2].ToArray()
		if err != nil || len(node) < 2 || first < 0 || last >= slotCount {
			return nil, errors.Join(errTable, err)
		}

		host, _ := node[0].ToString()
		port, _ := node[1].ToInt64()
		addr := net.JoinHostPort(cmp.Or(host, own), strconv.FormatInt(port, 10))
		for i := first; i <= last; i++ {
			t.masters[i] = addr
		}
	}
	return t, nil
}

// masters returns the clients of the servers that decide.
func (c *client) masters(ctx context.Context) (map[string]rueidis.Client, error) {
	nodes := c.rueidis.Nodes()
	if c.slots == nil {
		return nodes, nil
	}

	t, err := c.slots.ask(ctx)
	if err != nil {
		return nil, err
	}

	// Most of the slots have the same few masters.
	list := map[string]rueidis.Client{}
	for _, addr := range t.masters {
		switch node, ok := nodes[addr]; {
		case ok:
			list[addr] = node
		case addr != "":
			return nil, unknownServer(addr)
		}
	}
	return list, nil
}

// Each implements [redisstore.Client].
func (c *client) Each(ctx context.Context,
	f func(ctx context.Context, send func(context.Context, redis.Cmder) error) error) error {

	servers, err := c.masters(ctx)
	if err != nil {
		return err
	}

	// A server that hangs keeps the others from nothing.
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, node := range servers {
		all.Go(func() {
			failed := f(ctx, func(ctx context.Context, cmd redis.Cmder) error { return c.process(ctx, node, cmd) })
			mu.Lock()
			defer mu.Unlock()
			err = cmp.Or(err, failed)
		})
	}
	all.Wait()
	return err
}

// Connect implements [redisstore.Client].
func (c *client) Connect(ctx context.Context, addr string, n int) (ready int, err error) {
	// A trial of one server must not wait for the others.
	if addr != "" {
		node := c.rueidis.Nodes()[addr]
		if node == nil {
			return 0, unknownServer(addr)
		}
		return c.connectOne(ctx, node, n)
	}

	servers, err := c.masters(ctx)
	if err != nil {
		return 0, err
	}

	// The server with the fewest connections says for how many calls there are enough.
	ready = n
	for _, node := range servers {
		one, failed := c.connectOne(ctx, node, n)
		ready, err = min(ready, one), cmp.Or(err, failed)
	}
	return ready, err
}

// connectOne connects to a server by n commands at once, each of which needs a connection of its
// own. Any reply proves one, unless the server has turned the client away before it was asked.
func (c *client) connectOne(ctx context.Context, node rueidis.Client, n int) (ready int, err error) {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			cmd := c.build(node.B(), []any{"time"}, alone)
			if failed := node.Do(ctx, cmd).NonRedisError(); failed != nil {
				errs[i] = c.errorOf(failed)
			}
		})
	}
	all.Wait()

	for _, each := range errs {
		if each == nil {
			ready++
		}
		err = cmp.Or(err, each)
	}
	return ready, err
}

// unknownServer is the error of a server that rueidis does not know, or not yet.
func unknownServer(addr string) error {
	return fmt.Errorf("rueidisstore: rueidis does not know the server %s", addr)
}

// slotOf returns the slot of a key, or of all keys with a hash tag.
func slotOf(keyOrTag string) int {
	// As servers do, an empty tag is taken for none.
	text := keyOrTag
	if _, after, ok := strings.Cut(keyOrTag, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			text = tag
		}
	}

	crc := uint16(0)
	for i := range len(text) {
		crc ^= uint16(text[i]) << 8
		for range 8 {
			crc = crc<<1 ^ crc>>15*0x1021
		}
	}
	return int(crc % slotCount)
}
