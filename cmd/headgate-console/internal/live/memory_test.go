package live

import "testing"

func TestMemoryOfInfo(t *testing.T) {
	for _, row := range []struct {
		info        string
		used, limit int64
	}{
		{"# Memory\r\nused_memory:900\r\nused_memory_human:1K\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n", 900, 1000},
		{"used_memory:900\r\nmaxmemory:1000\r\nmaxmemory_policy:volatile-lru\r\n", 900, 1000},
		{"used_memory:900\r\nmaxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n", 900, 0},
		{"used_memory:900\r\nmaxmemory:0\r\n", 900, 0},
		{"", 0, 0},
		{"used_memory:x\r\nmaxmemory", 0, 0},
	} {
		if used, limit := memoryOf(row.info); used != row.used || limit != row.limit {
			t.Errorf("%q: %d of %d, want %d of %d", row.info, used, limit, row.used, row.limit)
		}
	}
}
