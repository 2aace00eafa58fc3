package migrate

import (
	"hash/maphash"
	"math/bits"
)

// fingerprint stands for a key in tables that must not hold the keys
// themselves. With 128 bits, two of a billion keys collide with a probability
// below 10^-20.
type fingerprint [2]uint64

// fingerprinter computes fingerprints that are equal within one process only.
type fingerprinter [2]maphash.Seed

func newFingerprinter() fingerprinter {
	return fingerprinter{maphash.MakeSeed(), maphash.MakeSeed()}
}

func (f fingerprinter) of(key []byte) fingerprint {
	print := fingerprint{maphash.Bytes(f[0], key), maphash.Bytes(f[1], key)}
	if key == nil {
		print[0]++ // null and empty are two keys
	}
	return print
}

// keyTable maps fingerprints to values of a fixed size. It exists because a
// Go map takes about half as much again: here a key costs its fingerprint, its
// value and 4.4 to 6.7 bytes of index, so that the tables of a phase stay below
// 64 bytes a key. The zero value is empty.
type keyTable[V any] struct {
	chunks [][]keyEntry[V] // never moved, so that growing copies nothing
	index  []uint32        // number of an entry plus one; 0 is free
	size   int
}

type keyEntry[V any] struct {
	key   fingerprint
	value V
}

const keyChunk = 1 << 10

// at is the value of a key, inserted as the zero value if it is new.
func (t *keyTable[V]) at(key fingerprint) (value *V, isNew bool) {
	if 10*(t.size+1) > 9*len(t.index) {
		t.grow()
	}
	slot := t.slot(key)
	if found := t.index[slot]; found != 0 {
		return &t.entry(int(found - 1)).value, false
	}
	if t.size%keyChunk == 0 {
		t.chunks = append(t.chunks, make([]keyEntry[V], 0, keyChunk))
	}
	last := len(t.chunks) - 1
	t.chunks[last] = append(t.chunks[last], keyEntry[V]{key: key})
	t.size++
	t.index[slot] = uint32(t.size)
	return &t.entry(t.size - 1).value, true
}

// get is the value of a key, or nil.
func (t *keyTable[V]) get(key fingerprint) *V {
	if t.size == 0 {
		return nil
	}
	if found := t.index[t.slot(key)]; found != 0 {
		return &t.entry(int(found - 1)).value
	}
	return nil
}

// entry is the i-th entry in the order of insertion.
func (t *keyTable[V]) entry(i int) *keyEntry[V] { return &t.chunks[i/keyChunk][i%keyChunk] }

// slot is where a key is or would go in the index.
func (t *keyTable[V]) slot(key fingerprint) int {
	high, _ := bits.Mul64(key[0], uint64(len(t.index))) // a fair share of the range, without dividing
	for slot := int(high); ; slot++ {
		if slot == len(t.index) {
			slot = 0
		}
		found := t.index[slot]
		if found == 0 || t.entry(int(found-1)).key == key {
			return slot
		}
	}
}

// grow makes room by half as much again and builds the index anew.
func (t *keyTable[V]) grow() {
	room := max(64, len(t.index)+len(t.index)/2)
	t.index = nil // free it first: both at once would be the peak
	t.index = make([]uint32, room)
	for i := range t.size {
		t.index[t.slot(t.entry(i).key)] = uint32(i + 1)
	}
}
