package rewrite

import (
	"bytes"
	"fmt"

	"rekey/keycodec"
)

// Translate reads a source key into k as the target will know it, and appends
// the target key to dst. Where the rules name actions, k has the action's new
// UUID.
//
// A *keycodec.ParseError says why the source key has no place on the target: it
// cannot be parsed, or nobody named its action, or the target's format has no
// such business key. Its Offset counts from the start of the source key. On an
// error dst is returned as it was.
func (r *Rules) Translate(dst []byte, k *keycodec.Key, stateKey []byte) ([]byte, error) {
	if err := r.From.Parse(k, stateKey); err != nil {
		return dst, err
	}
	if problem := r.rename(k, stateKey); problem != nil {
		return dst, problem
	}
	key, err := r.To.Append(dst, k)
	if problem, ok := err.(*keycodec.ParseError); ok {
		problem.Offset += businessKeyAt(r.From, stateKey, k)
	}
	return key, err
}

// rename gives k the action UUID that the target's runtime knows its action by.
func (r *Rules) rename(k *keycodec.Key, stateKey []byte) *keycodec.ParseError {
	if r.Actions == nil {
		return nil
	}
	named, known := r.Actions[k.Action]
	if !known {
		const uuidLength = 36
		end := len(stateKey)
		if r.From == keycodec.KeyGroupLast {
			end -= len(k.BusinessKey) + 1
		}
		return &keycodec.ParseError{Format: r.From.Name(), Reason: keycodec.UnknownAction, Field: keycodec.FieldAction, Offset: end - uuidLength,
			Detail: fmt.Sprintf("nobody named the action %s, so its UUID in release 0.4 is not known", k.Action)}
	}
	k.Action = named
	return nil
}

// businessKeyAt is where the business key begins in a key of a source format.
func businessKeyAt(from keycodec.Format, stateKey []byte, k *keycodec.Key) int {
	switch from {
	case keycodec.KeyGroupFirst:
		return bytes.IndexByte(stateKey, '_') + 1
	case keycodec.KeyGroupLast:
		return len(stateKey) - len(k.BusinessKey)
	}
	return 0
}
