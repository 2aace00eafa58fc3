package keycodec

import (
	"crypto/md5"
	"encoding/binary"
	"iter"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/uuid"
)

// The hash functions of Java, Flink and Kafka that say where a key lives. A copy in any other place
// than the one where the runtime will write is a copy that compaction never removes and recovery may
// see too late, so these must agree bit for bit.

// JavaHash is String.hashCode of UTF-8 text. Java hashes UTF-16 code units, so a character beyond the
// basic plane counts as its two surrogates. Each byte that is not UTF-8 counts as one U+FFFD.
func JavaHash(text []byte) int32 {
	var h int32
	for unit := range utf16Units(text) {
		h = 31*h + int32(unit)
	}
	return h
}

// utf16Units yields text as Java holds it.
func utf16Units(text []byte) iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		for i := 0; i < len(text); {
			if c := text[i]; c < utf8.RuneSelf {
				i++
				if !yield(uint16(c)) {
					return
				}
				continue
			}
			r, size := utf8.DecodeRune(text[i:])
			i += size
			if r > 0xffff {
				high, low := utf16.EncodeRune(r)
				if !yield(uint16(high)) {
					return
				}
				r = low
			}
			if !yield(uint16(r)) {
				return
			}
		}
	}
}

// FlinkMurmur is MathUtils.murmurHash of Flink: one round of MurmurHash3 over the four bytes of code,
// made non-negative.
func FlinkMurmur(code int32) int32 {
	h := uint32(code) * 0xcc9e2d51
	h = bits.RotateLeft32(h, 15) * 0x1b873593
	h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
	h ^= 4
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	switch n := int32(h); {
	case n >= 0:
		return n
	case n == -1<<31: // has no positive counterpart
		return 0
	default:
		return -n
	}
}

// AssignKeyGroup is KeyGroupRangeAssignment.assignToKeyGroup of Flink, for a key with that hashCode.
func AssignKeyGroup(hash, maxParallelism int32) int32 {
	return FlinkMurmur(hash) % maxParallelism
}

// JavaMurmur2 is Utils.murmur2 of Kafka, which its Java producer partitions by: the partition is the
// hash without its sign bit, modulo the number of partitions.
func JavaMurmur2(key []byte) int32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return int32(h)
}

// NameUUID is UUID.nameUUIDFromBytes of Java: a version 3 UUID of the name alone, with no name space
// before it. Action UUIDs of release 0.4 are the NameUUID of the action's name.
func NameUUID(name []byte) uuid.UUID {
	u := uuid.UUID(md5.Sum(name))
	u[6] = u[6]&0x0f | 0x30
	u[8] = u[8]&0x3f | 0x80
	return u
}
