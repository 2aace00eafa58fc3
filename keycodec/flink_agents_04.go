package keycodec

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// flinkAgents04 is what release 0.4 reads:
//
//	keyGroup _ sequence _ event _ action _ digest
//
// The digest is base64 of the SHA-256 of the Flink key as its serializer writes it. It goes one way:
// Parse recognises the structure and yields the digest, but no business key.
type flinkAgents04 struct {
	keyType        KeyType
	maxParallelism int32
}

// digestLen is the length of 32 bytes in base64: 42 full characters, one of 4 bits, one of padding.
const digestLen = 44

// NewFlinkAgents04 returns the flink-agents-0.4 format for a job whose keys are of type t. Neither
// parameter can be seen in a topic, and each changes every key: the text "1" is another key as a
// string than as a long.
//
// Append takes the business key's text back to the value that printed it. Text that no value of the
// type prints ("01" for a long) is refused with reason foreign. A Key without business key but with a
// Digest, as Parse returns it, is written back as it was.
func NewFlinkAgents04(t KeyType, maxParallelism int32) (Format, error) {
	if _, err := ParseKeyType(string(t)); err != nil {
		return nil, err
	}
	if maxParallelism < 1 || maxParallelism > MaxMaxParallelism {
		return nil, fmt.Errorf("max parallelism %d: expected 1 to %d", maxParallelism, MaxMaxParallelism)
	}
	return flinkAgents04{t, maxParallelism}, nil
}

func (flinkAgents04) Name() string { return NameFlinkAgents04 }

func (f flinkAgents04) Parse(k *Key, stateKey []byte) error {
	if !parseFlinkAgents04(k, stateKey, f.maxParallelism) {
		return diagnoseFlinkAgents04(stateKey, f.maxParallelism)
	}
	return nil
}

func parseFlinkAgents04(k *Key, stateKey []byte, maxParallelism int32) bool {
	k.reset()
	digest, ok := parseHead(k, stateKey, maxParallelism)
	k.Digest = digest
	return ok && faultInDigest(digest) < 0
}

func diagnoseFlinkAgents04(stateKey []byte, maxParallelism int32) *ParseError {
	if err := diagnoseWhole(NameFlinkAgents04, stateKey); err != nil {
		return err
	}
	digest, ok := parseHead(new(Key), stateKey, maxParallelism)
	if !ok {
		return diagnoseHead(NameFlinkAgents04, stateKey, maxParallelism)
	}
	at := faultInDigest(digest)
	return &ParseError{NameFlinkAgents04, Foreign, FieldDigest, len(stateKey) - len(digest) + at,
		"expected the canonical base64 of 32 bytes, 44 characters, found " + found(digest, at)}
}

// faultInDigest returns where text stops being the canonical base64 of 32 bytes, -1 if nowhere.
func faultInDigest(text []byte) int {
	for i, c := range text {
		switch {
		case i < digestLen-2 && isBase64[c]:
		case i == digestLen-2 && bytes.IndexByte(base64Final, c) >= 0:
		case i == digestLen-1 && c == '=':
		default:
			return i
		}
	}
	if len(text) < digestLen {
		return len(text)
	}
	return -1
}

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

var isBase64 = func() (table [256]bool) {
	for _, c := range []byte(base64Digits) {
		table[c] = true
	}
	return table
}()

// base64Final holds the digits whose two low bits are zero: the last one carries just four.
var base64Final = []byte("AEIMQUYcgkosw048")

func (f flinkAgents04) Append(dst []byte, k *Key) ([]byte, error) {
	if err := k.checkSequence(NameFlinkAgents04); err != nil {
		return dst, err
	}
	if k.BusinessKey == nil && k.Digest != nil {
		return f.appendDigest(dst, k)
	}
	var buffer [256]byte // keys longer than this cost an allocation
	serialized, hash, err := f.keyType.Serialize(buffer[:0], k.BusinessKey)
	if err != nil {
		return dst, err
	}
	out := Key{Sequence: k.Sequence, Event: k.Event, Action: k.Action,
		KeyGroup: AssignKeyGroup(hash, f.maxParallelism)}
	sum := sha256.Sum256(serialized)
	return base64.StdEncoding.AppendEncode(appendHead(dst, &out), sum[:]), nil
}

func (f flinkAgents04) appendDigest(dst []byte, k *Key) ([]byte, error) {
	if err := k.checkKeyGroup(NameFlinkAgents04, f.maxParallelism); err != nil {
		return dst, err
	}
	if at := faultInDigest(k.Digest); at >= 0 {
		return dst, &ParseError{NameFlinkAgents04, Foreign, FieldDigest, at, "expected the canonical base64 of 32 bytes"}
	}
	return append(appendHead(dst, k), k.Digest...), nil
}

// PartitionText is the last field; no base64 digit is a '_'.
func (flinkAgents04) PartitionText(stateKey []byte, k *Key) []byte {
	if k == nil {
		return firstField(stateKey)
	}
	return stateKey[bytes.LastIndexByte(stateKey, '_')+1:]
}
