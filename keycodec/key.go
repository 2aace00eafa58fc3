package keycodec

import (
	"bytes"
	"math"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	// NoKeyGroup is the KeyGroup of a key whose format has none.
	NoKeyGroup int32 = -1

	// MaxSequence is the highest sequence number a key can carry.
	MaxSequence int64 = math.MaxInt64

	// MaxMaxParallelism is the highest max parallelism that Flink allows; key groups lie below it.
	MaxMaxParallelism int32 = 1 << 15
)

// Key is what a state key says, whatever its format.
//
// Parse fills a Key in place so that a scan over millions of records needs just one. What it holds
// is therefore borrowed: BusinessKey and Digest alias the parsed input or the Key's own scratch, and
// stay valid only until the input changes or something is parsed into the same Key again. Clone
// makes a copy to keep.
type Key struct {
	BusinessKey   []byte    // the Flink key's text form, UTF-8
	Sequence      int64     // 0..MaxSequence
	Event, Action uuid.UUID // name-based (version 3) in keys written by a well-behaved job
	KeyGroup      int32     // NoKeyGroup for formats without one

	// Digest is the last field of a flink-agents-0.4 key: base64 of the SHA-256 of the serialized
	// Flink key. A key parsed from that format has it instead of a BusinessKey, which cannot be had
	// back. Nil in every other format.
	Digest []byte

	scratch []byte // backs BusinessKey where the input spells it with escapes
}

// Clone returns a copy of k that shares no memory with it.
func (k *Key) Clone() Key {
	c := *k
	c.BusinessKey = bytes.Clone(k.BusinessKey)
	c.Digest = bytes.Clone(k.Digest)
	c.scratch = nil
	return c
}

// reset forgets what k held, except for the memory worth re-using.
func (k *Key) reset() {
	*k = Key{KeyGroup: NoKeyGroup, scratch: k.scratch[:0]}
}

// checkText reports why no text format can express k: the fields that every one of them has.
func (k *Key) checkText(format string) error {
	if k.BusinessKey == nil && k.Digest != nil {
		return &ParseError{format, Foreign, FieldBusinessKey, 0,
			"expected a business key, found only its digest, from which it cannot be had back"}
	}
	if !utf8.Valid(k.BusinessKey) {
		return invalidUTF8(format, FieldBusinessKey, k.BusinessKey)
	}
	return k.checkSequence(format)
}

func (k *Key) checkSequence(format string) error {
	if k.Sequence < 0 {
		return &ParseError{format, BadSequence, FieldSequence, 0,
			"expected a number from 0 to 9223372036854775807, found a negative one"}
	}
	return nil
}

func (k *Key) checkKeyGroup(format string, maxParallelism int32) error {
	if k.KeyGroup < 0 || k.KeyGroup >= maxParallelism {
		return &ParseError{format, BadKeyGroup, FieldKeyGroup, 0, expectedKeyGroup(maxParallelism)}
	}
	return nil
}
