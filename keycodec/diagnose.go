package keycodec

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/google/uuid"
)

// The slow half of parsing: a key was refused, and a person must learn why. The reasons are tried in
// the order of the package documentation, from what concerns the key as a whole down to single
// fields. Nothing here runs for a key that parses.

// diagnoseWhole looks for the reasons that have nothing to do with single fields. It returns nil when
// the fields must be looked at.
func diagnoseWhole(format string, stateKey []byte) *ParseError {
	switch {
	case stateKey == nil:
		return &ParseError{format, NullKey, FieldKey, 0, "expected a key, found null"}
	case len(stateKey) == 0:
		return &ParseError{format, EmptyKey, FieldKey, 0, "expected a key, found one of no bytes"}
	case !utf8.Valid(stateKey):
		return invalidUTF8(format, FieldKey, stateKey)
	}
	if detail := encodedForm(stateKey); detail != "" && format != nameLengthPrefixed && format != NameFlinkAgents04 {
		return &ParseError{format, AlreadyEncoded, FieldKey, 0, fmt.Sprintf("expected the %s format, found %s", format, detail)}
	}
	if isDashed(stateKey) {
		return &ParseError{format, Dashed, FieldSequence, len(stateKey) - tailLen,
			"expected a sequence number, found the layout businessKey-event-action from before 0.1.0, which has none"}
	}
	return nil
}

func invalidUTF8(format, field string, text []byte) *ParseError {
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return &ParseError{format, InvalidUTF8, field, at, "expected UTF-8, found " + found(text, at)}
}

// encodedForm describes a key in one of the target formats that cannot be mistaken for a source
// format, whether whole or damaged. Escaped keys are not among them: each is a legacy key too.
func encodedForm(stateKey []byte) string {
	var k Key
	if parseFlinkAgents04(&k, stateKey, MaxMaxParallelism) {
		return "a flink-agents-0.4 key"
	}
	if parseLengthPrefixed(&k, stateKey) {
		return "a length-prefixed key"
	}
	// "lp1:" alone may well begin a business key; with a length after it that is far-fetched.
	rest, ok := bytes.CutPrefix(stateKey, lengthPrefix)
	length, _, more := bytes.Cut(rest, colon)
	if ok && more && len(length) > 0 && len(bytes.Trim(length, "0123456789")) == 0 {
		err := faultInLengthPrefixed(stateKey)
		return fmt.Sprintf("a damaged length-prefixed key (%s, byte %d: %s)", err.Field, err.Offset, err.Detail)
	}
	return ""
}

// otherSource says that a key is whole, but in a format which somebody did not ask for.
func otherSource(format, other string) *ParseError {
	return &ParseError{format, Foreign, FieldKey, 0,
		fmt.Sprintf("expected a %s key, found a complete %s key", format, other)}
}

// diagnoseTail explains why parseTail refused stateKey. The fields are looked at from the right,
// because each one is found by what stands to the right of it: the first that is bad is the cause,
// what lies further left may only be its consequence.
func diagnoseTail(format string, stateKey []byte) *ParseError {
	if err := diagnoseCount(format, stateKey, 4); err != nil {
		return err
	}
	end := len(stateKey)
	next := func() (field []byte, start int) { // the next field from the right
		start = bytes.LastIndexByte(stateKey[:end], '_') + 1
		field, end = stateKey[start:end], start-1
		return field, start
	}
	var u uuid.UUID
	if action, start := next(); !parseUUID(&u, action) {
		at, detail := faultInUUID(action)
		return &ParseError{format, BadActionUUID, FieldAction, start + at, detail}
	}
	if event, start := next(); !parseUUID(&u, event) {
		at, detail := faultInUUID(event)
		return &ParseError{format, BadEventUUID, FieldEvent, start + at, detail}
	}
	sequence, start := next()
	at, detail := faultInDecimal(sequence, math.MaxInt64)
	return &ParseError{format, BadSequence, FieldSequence, start + at, detail}
}

// diagnoseHead explains why parseHead refused stateKey, in the manner of diagnoseTail, from the left.
func diagnoseHead(format string, stateKey []byte, maxParallelism int32) *ParseError {
	if err := diagnoseCount(format, stateKey, 5); err != nil {
		return err
	}
	start := 0
	next := func() (field []byte, at int) { // the next field from the left
		field, _, _ = bytes.Cut(stateKey[start:], separator)
		at, start = start, start+len(field)+1
		return field, at
	}
	group, _ := next()
	if _, ok := parseDecimal(group, int64(maxParallelism)-1); !ok {
		at, detail := faultInKeyGroup(group, maxParallelism)
		return &ParseError{format, BadKeyGroup, FieldKeyGroup, at, detail}
	}
	sequence, from := next()
	if _, ok := parseDecimal(sequence, math.MaxInt64); !ok {
		at, detail := faultInDecimal(sequence, math.MaxInt64)
		return &ParseError{format, BadSequence, FieldSequence, from + at, detail}
	}
	var u uuid.UUID
	event, from := next()
	if !parseUUID(&u, event) {
		at, detail := faultInUUID(event)
		return &ParseError{format, BadEventUUID, FieldEvent, from + at, detail}
	}
	action, from := next()
	at, detail := faultInUUID(action)
	return &ParseError{format, BadActionUUID, FieldAction, from + at, detail}
}

// diagnoseCount tells a key that lost a field from one that never had any of ours: a UUID anywhere is
// the sign that the runtime, or something that imitates it, wrote the key.
func diagnoseCount(format string, stateKey []byte, want int) *ParseError {
	if !hasUUID(stateKey) {
		return &ParseError{format, Foreign, FieldKey, 0, "expected an event and an action UUID, found no UUID anywhere"}
	}
	if n := bytes.Count(stateKey, separator) + 1; n < want {
		return &ParseError{format, TooFewFields, FieldKey, 0, fmt.Sprintf("expected %d fields separated by '_', found %d", want, n)}
	}
	return nil
}

// hasUUID reports whether a UUID stands anywhere in the key, in either case.
func hasUUID(stateKey []byte) bool {
	var u uuid.UUID
	for lower := bytes.ToLower(stateKey); len(lower) >= uuidLen; lower = lower[1:] {
		if parseUUID(&u, lower[:uuidLen]) {
			return true
		}
	}
	return false
}

func faultInKeyGroup(text []byte, maxParallelism int32) (int, string) {
	if _, ok := parseDecimal(text, math.MaxInt64); ok {
		return 0, expectedKeyGroup(maxParallelism)
	}
	return faultInDecimal(text, math.MaxInt64)
}
