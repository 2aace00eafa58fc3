package keycodec

import "unicode/utf8"

// KeyGroupLast is what development snapshots of September 2026 wrote:
//
//	keyGroup _ sequence _ event _ action _ businessKey
//
// Here the business key comes last, so the key is read from the left.
var KeyGroupLast Format = keyGroupLast{}

type keyGroupLast struct{}

const nameKeyGroupLast = "keygroup-last"

func (keyGroupLast) Name() string { return nameKeyGroupLast }

func (keyGroupLast) Parse(k *Key, stateKey []byte) error {
	if !parseKeyGroupLast(k, stateKey) {
		return diagnoseKeyGroupLast(stateKey)
	}
	return nil
}

func parseKeyGroupLast(k *Key, stateKey []byte) bool {
	k.reset()
	businessKey, ok := parseHead(k, stateKey, MaxMaxParallelism)
	k.BusinessKey = businessKey
	return ok && utf8.Valid(businessKey)
}

func diagnoseKeyGroupLast(stateKey []byte) *ParseError {
	if err := diagnoseWhole(nameKeyGroupLast, stateKey); err != nil {
		return err
	}
	if parseLegacy(new(Key), stateKey) {
		return otherSource(nameKeyGroupLast, nameLegacy)
	}
	return diagnoseHead(nameKeyGroupLast, stateKey, MaxMaxParallelism)
}

func (keyGroupLast) Append(dst []byte, k *Key) ([]byte, error) {
	if err := k.checkKeyGroup(nameKeyGroupLast, MaxMaxParallelism); err != nil {
		return dst, err
	}
	if err := k.checkText(nameKeyGroupLast); err != nil {
		return dst, err
	}
	return append(appendHead(dst, k), k.BusinessKey...), nil
}

func (keyGroupLast) PartitionText(stateKey []byte, _ *Key) []byte { return firstField(stateKey) }
