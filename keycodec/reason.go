package keycodec

import (
	"fmt"
	"slices"
)

// Reason says in one word why a state key could not be parsed. It is a closed list: reports group by
// it and operators accept repairs by it, so a code once published keeps its meaning.
type Reason string

// The reasons, in the order in which they are looked for (see the package documentation).
const (
	NullKey        Reason = "null-key"
	EmptyKey       Reason = "empty-key"
	InvalidUTF8    Reason = "invalid-utf8"
	AlreadyEncoded Reason = "already-encoded"
	Dashed         Reason = "dashed"
	TooFewFields   Reason = "too-few-fields"
	BadActionUUID  Reason = "bad-action-uuid"
	BadEventUUID   Reason = "bad-event-uuid"
	BadSequence    Reason = "bad-sequence"
	BadKeyGroup    Reason = "bad-key-group"
	BadEscape      Reason = "bad-escape"
	BadLength      Reason = "bad-length"
	Foreign        Reason = "foreign"
	UnknownAction  Reason = "unknown-action" // no format yields it: the key is whole, but nobody named its action
)

var reasons = [...]Reason{
	NullKey, EmptyKey, InvalidUTF8, AlreadyEncoded, Dashed, TooFewFields,
	BadActionUUID, BadEventUUID, BadSequence, BadKeyGroup, BadEscape, BadLength, Foreign, UnknownAction,
}

// Reasons lists every reason in documentation order.
func Reasons() []Reason { return slices.Clone(reasons[:]) }

// The values of ParseError.Field.
const (
	FieldKey         = "key" // the key as a whole
	FieldPrefix      = "prefix"
	FieldKeyGroup    = "key-group"
	FieldLength      = "length"
	FieldBusinessKey = "business-key"
	FieldSequence    = "sequence"
	FieldEvent       = "event-uuid"
	FieldAction      = "action-uuid"
	FieldDigest      = "digest"
)

// ParseError says why a key is not of a format, and where. Append returns it as well, for a Key that
// its format cannot express; Offset then counts from the start of the field.
type ParseError struct {
	Format string // Format.Name
	Reason Reason
	Field  string // one of the Field constants
	Offset int    // byte of the key at which the format is left
	Detail string // what was expected there, and what was found
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("%s: not in %s format: %s, byte %d: %s", e.Reason, e.Format, e.Field, e.Offset, e.Detail)
}
