package keycodec

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// LengthPrefixed is the self-describing target:
//
//	lp1:length:businessKey:sequence:event:action
//
// The length counts the bytes of the business key, which is copied as it is. A reader that knows
// nothing of the topic can tell these keys from all others by their first four bytes.
var LengthPrefixed Format = lengthPrefixed{}

type lengthPrefixed struct{}

const nameLengthPrefixed = "length-prefixed"

var lengthPrefix = []byte("lp1:")

func (lengthPrefixed) Name() string { return nameLengthPrefixed }

func (lengthPrefixed) Parse(k *Key, stateKey []byte) error {
	if !parseLengthPrefixed(k, stateKey) {
		return diagnoseLengthPrefixed(stateKey)
	}
	return nil
}

func parseLengthPrefixed(k *Key, stateKey []byte) bool {
	k.reset()
	rest, ok := bytes.CutPrefix(stateKey, lengthPrefix)
	if !ok {
		return false
	}
	length, rest, _ := bytes.Cut(rest, colon)
	n, ok := parseDecimal(length, math.MaxInt64)
	if !ok || n >= int64(len(rest)) || rest[n] != ':' {
		return false
	}
	k.BusinessKey = rest[:n:n]
	sequence, rest, _ := bytes.Cut(rest[n+1:], colon)
	if k.Sequence, ok = parseDecimal(sequence, math.MaxInt64); !ok {
		return false
	}
	return len(rest) == 2*uuidLen+1 && rest[uuidLen] == ':' &&
		parseUUID(&k.Event, rest[:uuidLen]) && parseUUID(&k.Action, rest[uuidLen+1:]) &&
		utf8.Valid(k.BusinessKey)
}

var colon = []byte{':'}

func diagnoseLengthPrefixed(stateKey []byte) *ParseError {
	if err := diagnoseWhole(nameLengthPrefixed, stateKey); err != nil {
		return err
	}
	return faultInLengthPrefixed(stateKey)
}

// faultInLengthPrefixed goes over the fields from the left, as a reader does.
func faultInLengthPrefixed(stateKey []byte) *ParseError {
	rest := stateKey
	fail := func(reason Reason, field string, at int, detail string) *ParseError {
		return &ParseError{nameLengthPrefixed, reason, field, len(stateKey) - len(rest) + at, detail}
	}
	if !bytes.HasPrefix(rest, lengthPrefix) {
		return fail(Foreign, FieldPrefix, 0, `expected "lp1:", found `+found(rest, 0))
	}
	rest = rest[len(lengthPrefix):]

	length, after, more := bytes.Cut(rest, colon)
	n, ok := parseDecimal(length, math.MaxInt64)
	switch {
	case !ok:
		at, detail := faultInDecimal(length, math.MaxInt64)
		return fail(BadLength, FieldLength, at, detail)
	case !more:
		return fail(TooFewFields, FieldBusinessKey, len(rest), "expected ':' and the business key, found the end")
	case n > int64(len(after)):
		return fail(BadLength, FieldLength, 0,
			fmt.Sprintf("expected a business key of %d bytes, found %d bytes to the end of the key", n, len(after)))
	}
	rest = after[n:]
	switch {
	case len(rest) == 0:
		return fail(TooFewFields, FieldSequence, 0, "expected ':' and the sequence number, found the end")
	case rest[0] != ':':
		return fail(BadLength, FieldBusinessKey, 0,
			fmt.Sprintf("expected ':' after a business key of %d bytes, found %s", n, found(rest, 0)))
	}
	rest = rest[1:]

	sequence, after, more := bytes.Cut(rest, colon)
	if _, ok := parseDecimal(sequence, math.MaxInt64); !ok {
		at, detail := faultInDecimal(sequence, math.MaxInt64)
		return fail(BadSequence, FieldSequence, at, detail)
	}
	if !more {
		return fail(TooFewFields, FieldEvent, len(rest), "expected ':' and the event UUID, found the end")
	}
	rest = after

	var k Key
	event, after, more := bytes.Cut(rest, colon)
	if !parseUUID(&k.Event, event) {
		at, detail := faultInUUID(event)
		return fail(BadEventUUID, FieldEvent, at, detail)
	}
	if !more {
		return fail(TooFewFields, FieldAction, len(rest), "expected ':' and the action UUID, found the end")
	}
	rest = after
	at, detail := faultInUUID(rest)
	return fail(BadActionUUID, FieldAction, at, detail)
}

func (lengthPrefixed) Append(dst []byte, k *Key) ([]byte, error) {
	if err := k.checkText(nameLengthPrefixed); err != nil {
		return dst, err
	}
	dst = append(dst, lengthPrefix...)
	dst = strconv.AppendInt(dst, int64(len(k.BusinessKey)), 10)
	dst = append(append(dst, ':'), k.BusinessKey...)
	dst = strconv.AppendInt(append(dst, ':'), k.Sequence, 10)
	return appendUUIDs(append(dst, ':'), k, ':'), nil
}

func (lengthPrefixed) PartitionText(stateKey []byte, k *Key) []byte {
	if k == nil {
		return firstField(stateKey)
	}
	return k.BusinessKey
}
