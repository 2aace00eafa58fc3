package keycodec

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// KeyGroupFirst is what development snapshots of August 2026 wrote:
//
//	keyGroup _ businessKey _ sequence _ event _ action
//
// Each such key is also a legacy key, with a business key such as "12_foo". Nothing in the key tells
// the two apart, so this format is never guessed: somebody has to name it.
var KeyGroupFirst Format = keyGroupFirst{}

type keyGroupFirst struct{}

const nameKeyGroupFirst = "keygroup-first"

func (keyGroupFirst) Name() string { return nameKeyGroupFirst }

func (keyGroupFirst) Parse(k *Key, stateKey []byte) error {
	if !parseKeyGroupFirst(k, stateKey) {
		return diagnoseKeyGroupFirst(stateKey)
	}
	return nil
}

func parseKeyGroupFirst(k *Key, stateKey []byte) bool {
	k.reset()
	n, ok := parseTail(k, stateKey)
	if !ok {
		return false
	}
	group, businessKey, ok := bytes.Cut(stateKey[:n:n], separator)
	if !ok {
		return false
	}
	g, ok := parseDecimal(group, int64(MaxMaxParallelism)-1)
	k.KeyGroup = int32(g)
	k.BusinessKey = businessKey
	return ok && utf8.Valid(businessKey)
}

func diagnoseKeyGroupFirst(stateKey []byte) *ParseError {
	if err := diagnoseWhole(nameKeyGroupFirst, stateKey); err != nil {
		return err
	}
	if parseKeyGroupLast(new(Key), stateKey) {
		return otherSource(nameKeyGroupFirst, nameKeyGroupLast)
	}
	n, ok := parseTail(new(Key), stateKey)
	if !ok {
		return diagnoseTail(nameKeyGroupFirst, stateKey)
	}
	// From here on it is a good legacy key, which is worth a word: it is the likely mistake.
	group, _, ok := bytes.Cut(stateKey[:n], separator)
	if !ok {
		return &ParseError{nameKeyGroupFirst, TooFewFields, FieldKeyGroup, 0,
			"expected a key group before the business key, found none: this is a complete legacy key"}
	}
	at, detail := faultInKeyGroup(group, MaxMaxParallelism)
	return &ParseError{nameKeyGroupFirst, BadKeyGroup, FieldKeyGroup, at,
		detail + ": this is a complete legacy key"}
}

func (keyGroupFirst) Append(dst []byte, k *Key) ([]byte, error) {
	if err := k.checkKeyGroup(nameKeyGroupFirst, MaxMaxParallelism); err != nil {
		return dst, err
	}
	if err := k.checkText(nameKeyGroupFirst); err != nil {
		return dst, err
	}
	dst = strconv.AppendInt(dst, int64(k.KeyGroup), 10)
	dst = append(append(dst, '_'), k.BusinessKey...)
	return appendTail(dst, k), nil
}

func (keyGroupFirst) PartitionText(stateKey []byte, _ *Key) []byte { return firstField(stateKey) }
