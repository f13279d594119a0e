package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"
)

var errNoRedis = errors.New("redis-server is not in PATH")

// startRedis starts a server without persistence on a free loopback port. stop
// ends it.
func startRedis() (addr string, stop func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", nil, errNoRedis
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}

	// The port is free now, and nothing else is likely to take it before Redis does.
	addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	l.Close()

	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", os.TempDir())
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}

	if err := awaitRedis(addr); err != nil {
		stop()
		return "", nil, err
	}
	return addr, stop, nil
}

// awaitRedis waits until the server answers, at most five seconds.
func awaitRedis(addr string) error {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 250 {
		if c.Ping(context.Background()).Err() == nil {
			return nil
		}
		<-tick.C
	}
	return fmt.Errorf("redis-server does not answer on %s", addr)
}
