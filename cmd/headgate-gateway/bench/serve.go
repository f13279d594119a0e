package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/collector"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/engine"
	"github.com/headgate/headgate/cmd/headgate-gateway/internal/rls"
	"github.com/headgate/headgate/policy"
)

// serve is the gateway's face on a Redis, until its input ends. It prints its address.
func serve(ctx context.Context, redisAddr, profile string, decisions int) error {
	collector.Relax()
	dir, err := os.MkdirTemp("", "headgate-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "bench.yaml"), []byte(config), 0o600); err != nil {
		return err
	}

	// There are no policies: the limits are those of the folder.
	e, err := engine.Open(ctx, engine.Options{
		Apps: []string{"none"}, Source: engine.Fixed(policy.Set{}),
		Redis: &redis.UniversalOptions{Addrs: []string{redisAddr}}, RedisPrefix: "headgate-bench:",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	defer e.Close()

	s, err := rls.New(e, rls.Options{Config: dir, MaxDecisions: decisions})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	// What comes before the first call is not profiled.
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}

	// The parent waits for the address, and ends this process by closing its input.
	fmt.Println(l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return errors.Join(s.Close(), <-served)
}

// child is a process that the program has started.
type child struct {
	cmd  *exec.Cmd
	addr string
	end  func() error
}

// startGateway starts the gateway's face in a process of its own.
func startGateway(redisAddr, profile string, decisions int) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(self, "-serve", redisAddr, "-profile", profile, "-decisions", strconv.Itoa(decisions))
	cmd.Stderr = os.Stderr

	// The gateway ends when its input does, also if this program dies.
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	if err := cmd.Start(); err != nil {
		return nil, err
	}

	c := &child{cmd: cmd, end: func() error { return errors.Join(in.Close(), cmd.Wait()) }}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the gateway does not start: %w", err), c.end())
	}

	c.addr = strings.TrimSpace(line)
	return c, nil
}

// startRedis starts a redis-server on a free port, which forgets all when it ends.
func startRedis(ctx context.Context) (*child, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w; install it, or name a Redis by -redis", err)
	}

	// The port is free now, and nothing else is likely to take it before Redis does.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}

	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	c := &child{cmd: cmd, addr: addr, end: func() error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // of which the error is that it was killed
		return nil
	}}

	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()

	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	for client.Ping(ctx).Err() != nil {
		select {
		case <-ctx.Done():
			return nil, errors.Join(errors.New("the redis-server does not answer"), c.end())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return c, nil
}
