package redisstore

import (
	"github.com/headgate/headgate/core"
	"github.com/redis/go-redis/v9"
)

// sharing says which steps may be decided by one script call.
type sharing uint8

const (
	shareNone sharing = iota // it is not known which keys share a server
	shareSlot                // those whose keys are in one slot
	shareAll
)

// shares tells what the steps of a store may share.
func shares(client redis.UniversalClient, o Options) sharing {
	if o.Batch == 1 {
		return shareNone
	}
	if o.OneSlot {
		return shareAll
	}
	switch client.(type) {
	case *redis.Client:
		return shareAll
	case *redis.ClusterClient:
		return shareSlot
	}
	return shareNone
}

// Slots of steps beside those of a Cluster: that of steps which may share a call
// with any other, and that of steps which may not.
const (
	anySlot = -1
	noSlot  = -2
)

// slotOf returns the slot of a step whose keys share one.
func (s *Store) slotOf(ops []core.Op) int {
	switch s.shared {
	case shareAll:
		return anySlot
	case shareSlot:
		var tag [2 * maxReadable]byte
		return int(crc16(s.text(tag[:0], ops[0].Key)) % 16384)
	}
	return noSlot
}

// crc16 is the CRC-16/XMODEM by which a Cluster turns hash tags into slots.
func crc16(text []byte) (crc uint16) {
	nibbles := [...]uint16{
		0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
		0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
	}
	for _, c := range text {
		crc = crc<<4 ^ nibbles[crc>>12^uint16(c>>4)]
		crc = crc<<4 ^ nibbles[crc>>12^uint16(c&15)]
	}
	return crc
}
