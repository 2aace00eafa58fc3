package keycodec

import "unicode/utf8"

// Legacy is what releases 0.1.0 to 0.3.1 write:
//
//	businessKey _ sequence _ event _ action
//
// The business key is not escaped and may contain the separator, so it is read from the right: the
// last three fields cannot contain it, and what stands before them is the business key, whole. Every
// key that was written in this format has exactly one meaning read that way.
var Legacy Format = legacy{}

type legacy struct{}

const nameLegacy = "legacy"

func (legacy) Name() string { return nameLegacy }

func (legacy) Parse(k *Key, stateKey []byte) error {
	if !parseLegacy(k, stateKey) {
		return diagnoseLegacy(stateKey)
	}
	return nil
}

func parseLegacy(k *Key, stateKey []byte) bool {
	k.reset()
	n, ok := parseTail(k, stateKey)
	if !ok {
		return false
	}
	k.BusinessKey = stateKey[:n:n]
	return utf8.Valid(k.BusinessKey)
}

func diagnoseLegacy(stateKey []byte) *ParseError {
	if err := diagnoseWhole(nameLegacy, stateKey); err != nil {
		return err
	}
	if parseKeyGroupLast(new(Key), stateKey) {
		return otherSource(nameLegacy, nameKeyGroupLast)
	}
	return diagnoseTail(nameLegacy, stateKey)
}

func (legacy) Append(dst []byte, k *Key) ([]byte, error) {
	if err := k.checkText(nameLegacy); err != nil {
		return dst, err
	}
	return appendTail(append(dst, k.BusinessKey...), k), nil
}

func (legacy) PartitionText(stateKey []byte, _ *Key) []byte { return firstField(stateKey) }
