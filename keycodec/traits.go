package keycodec

import (
	"bytes"
	"math/bits"

	"github.com/google/uuid"
)

// Traits marks a key that parses but deserves a look. It is a set of bits.
type Traits uint8

const (
	// UnstableIdentity: the business key looks like what Object.toString prints, a class name and an
	// identity hash ("[B@1a2b3c"). Another run of the job prints another one for the same key.
	UnstableIdentity Traits = 1 << iota

	// TypeAmbiguous: the business key is a whole number, so String, Long and Integer keys look alike.
	TypeAmbiguous

	// EventNotV3: the event UUID is not name-based; a job that replays the event gives it another one.
	EventNotV3

	// ActionNotV3: the action UUID is not name-based.
	ActionNotV3
)

var traitNames = [...]string{"unstable-identity", "type-ambiguous", "event-not-v3", "action-not-v3"}

// Has reports whether all the traits of other are in t.
func (t Traits) Has(other Traits) bool { return t&other == other }

// Names lists the traits in t as the words for reports.
func (t Traits) Names() []string {
	list := make([]string, 0, bits.OnesCount8(uint8(t)))
	for i, name := range traitNames {
		if t.Has(1 << i) {
			list = append(list, name)
		}
	}
	return list
}

// Traits looks for all traits of a key. It is cheap enough for every key of a scan.
func (k *Key) Traits() Traits {
	var t Traits
	if isIdentity(k.BusinessKey) {
		t |= UnstableIdentity
	}
	if _, ok := parseSigned(k.BusinessKey, 64); ok {
		t |= TypeAmbiguous
	}
	if !isNameBased(&k.Event) {
		t |= EventNotV3
	}
	if !isNameBased(&k.Action) {
		t |= ActionNotV3
	}
	return t
}

func isNameBased(u *uuid.UUID) bool { return u.Version() == 3 && u.Variant() == uuid.RFC4122 }

// isIdentity recognises getClass().getName() + "@" + Integer.toHexString(hashCode()).
func isIdentity(text []byte) bool {
	at := bytes.LastIndexByte(text, '@')
	if at < 1 {
		return false
	}
	hash := text[at+1:]
	if len(hash) < 1 || len(hash) > 8 || hash[0] == '0' && len(hash) > 1 {
		return false
	}
	for _, c := range hash {
		if hexValue[c] == 0xff {
			return false
		}
	}
	class := bytes.TrimLeft(text[:at], "[")
	if len(class) == 0 || '0' <= class[0] && class[0] <= '9' {
		return false
	}
	for _, c := range class {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c >= 0x80:
		case bytes.IndexByte([]byte("._$/;"), c) >= 0: // packages, inner classes, lambdas, arrays of objects
		default:
			return false
		}
	}
	return true
}
