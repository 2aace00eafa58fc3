package keycodec

import "github.com/google/uuid"

// isDashed recognises the keys of snapshots before 0.1.0:
//
//	businessKey - event - action
//
// They carry no sequence number, so they can be reported, but not converted: the runtime finds a
// state by its sequence number, and nothing says which it was.
func isDashed(stateKey []byte) bool {
	n := len(stateKey) - tailLen
	if n < 0 || stateKey[n] != '-' || stateKey[n+1+uuidLen] != '-' {
		return false
	}
	var u uuid.UUID
	return parseUUID(&u, stateKey[n+1:n+1+uuidLen]) && parseUUID(&u, stateKey[n+2+uuidLen:])
}
