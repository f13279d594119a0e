package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// meter reads CPU times.
type meter struct{ redis *redis.Client }

// tick is the unit of /proc/PID/stat.
const tick = 10 * time.Millisecond

// read returns the CPU time that a process and Redis have used, or 0 if pid is 0.
func (m *meter) read(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}

	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU times are read on Linux only: %w", err)
	}
	_, rest, ok := bytes.Cut(stat, []byte(") ")) // behind the name, which may have blanks
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat cannot be read", pid)
	}

	// The fields are counted behind the name.
	var total time.Duration
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(n) * tick
	}

	// Redis works for the service, so its time belongs to the decision.
	info, err := m.redis.Info(context.Background(), "cpu").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			total += time.Duration(seconds * float64(time.Second))
		}
	}

	return total, nil
}
