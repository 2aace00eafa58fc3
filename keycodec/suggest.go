package keycodec

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// The causes that Suggest recognises, a closed list.
const (
	CauseDoubleEncoded = "double-encoded"         // the key is in a target format already
	CauseWhitespace    = "surrounding-whitespace" // space, tab, line break or byte order mark at an end
	CauseNULPadding    = "nul-padding"            // NUL bytes at an end
	CauseJSONQuoted    = "json-quoted"            // the key is a JSON string
	CausePercent       = "percent-encoded"        // the key went through a URL
	CauseUpperCaseUUID = "upper-case-uuid"        // A1B2…
	CauseBracedUUID    = "braced-uuid"            // {a1b2…}
	CauseURNUUID       = "urn-uuid"               // urn:uuid:a1b2…
	CauseUndashedUUID  = "undashed-uuid"          // 32 hexadecimal digits
	CauseLostSeparator = "lost-separator"         // the '_' beside the event UUID is gone, or another character
	CauseOtherFormat   = "other-format"           // the key is whole, in another source format
)

// Causes lists every cause in the order in which they are tried.
func Causes() []string {
	list := []string{CauseDoubleEncoded}
	for _, m := range menders {
		list = append(list, m.cause)
	}
	return slices.Compact(append(list, CauseOtherFormat))
}

// Suggestion is what a key that cannot be parsed probably was before something spoilt it. It is for a
// person to judge and is never applied by itself: a repaired key can collide with one that was good
// all along.
type Suggestion struct {
	Cause    string // one of Causes; where two had to be undone, the outer one
	Repaired Key    // shares no memory with the input
	Text     string // what was undone, in one line
}

// Suggest looks for a recognisable cause why stateKey is not of format f. It undoes as little as
// possible: at most two causes, and each only as far as needed, so that white space which the business
// key may own is left alone.
func Suggest(f Format, stateKey []byte) (Suggestion, bool) {
	var k Key
	if len(stateKey) == 0 || f.Parse(&k, stateKey) == nil {
		return Suggestion{}, false
	}
	if f.Name() != nameLengthPrefixed && parseLengthPrefixed(&k, stateKey) {
		return Suggestion{CauseDoubleEncoded, k.Clone(), "take the key out of its length-prefixed form"}, true
	}
	for _, outer := range menders {
		if mended := outer.mend(f, stateKey); mended != nil && f.Parse(&k, mended) == nil {
			return Suggestion{outer.cause, k.Clone(), outer.text}, true
		}
	}
	if other := otherSourceOf(f, stateKey); other != nil && other.Parse(&k, stateKey) == nil {
		return Suggestion{CauseOtherFormat, k.Clone(), "read the key as " + other.Name()}, true
	}
	for _, outer := range menders {
		mended := outer.mend(f, stateKey)
		for i := 0; mended != nil && i < len(menders); i++ {
			inner := menders[i]
			if twice := inner.mend(f, mended); twice != nil && f.Parse(&k, twice) == nil {
				return Suggestion{outer.cause, k.Clone(), outer.text + ", then " + inner.text}, true
			}
		}
	}
	return Suggestion{}, false
}

// otherSourceOf returns the source format other than f that stateKey is a whole key of, nil if none.
func otherSourceOf(f Format, stateKey []byte) Format {
	var k Key
	isSource := slices.ContainsFunc(sources, func(s Format) bool { return s.Name() == f.Name() })
	switch {
	case !isSource, parseFlinkAgents04(&k, stateKey, MaxMaxParallelism): // the latter reads as keygroup-last, too
		return nil
	case parseLegacy(&k, stateKey):
		return Legacy
	case parseKeyGroupLast(&k, stateKey):
		return KeyGroupLast
	}
	return nil
}

// mender undoes one cause. It returns nil where it finds nothing to undo; whether the result makes
// sense is for Parse to say.
type mender struct {
	cause, text string
	mend        func(f Format, stateKey []byte) []byte
}

var menders = []mender{
	{CauseWhitespace, "remove the white space at the end", trim(bytes.TrimRightFunc, isSpace)},
	{CauseWhitespace, "remove the white space at the start", trim(bytes.TrimLeftFunc, isSpace)},
	{CauseNULPadding, "remove the NUL bytes at the end", trim(bytes.TrimRightFunc, isNUL)},
	{CauseNULPadding, "remove the NUL bytes at the start", trim(bytes.TrimLeftFunc, isNUL)},
	{CauseJSONQuoted, "take the key out of its JSON string", unquoteJSON},
	{CausePercent, "decode the percent signs", unescapeURL},
	{CauseUpperCaseUUID, "write the UUIDs in lower case", mendUUIDs(lowerUUID)},
	{CauseBracedUUID, "remove the braces around the UUIDs", mendUUIDs(unbraceUUID)},
	{CauseURNUUID, "remove urn:uuid: before the UUIDs", mendUUIDs(cutURN)},
	{CauseUndashedUUID, "write the UUIDs with dashes", mendUUIDs(dashUUID)},
	{CauseLostSeparator, "put '_' beside the event UUID", restoreSeparators},
}

func trim(cut func([]byte, func(rune) bool) []byte, what func(rune) bool) func(Format, []byte) []byte {
	return func(_ Format, stateKey []byte) []byte {
		trimmed := cut(stateKey, what)
		if len(trimmed) == len(stateKey) {
			return nil
		}
		return trimmed
	}
}

func isSpace(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' }
func isNUL(r rune) bool   { return r == 0 }

func unquoteJSON(_ Format, stateKey []byte) []byte {
	var text string
	if json.Unmarshal(stateKey, &text) != nil || bytes.ContainsRune([]byte(text), utf8.RuneError) {
		return nil // not a JSON string, or one that decoding would damage
	}
	return []byte(text)
}

func unescapeURL(f Format, stateKey []byte) []byte {
	if f.Name() == nameEscaped {
		return nil // its percent signs are its own
	}
	text, err := url.PathUnescape(string(stateKey))
	if err != nil || text == string(stateKey) {
		return nil
	}
	return []byte(text)
}

// mendUUIDs applies fix to the two UUID fields and to nothing else: a business key may hold a UUID of
// its own, in any spelling. The fix returns nil for a field that it has nothing to do with.
func mendUUIDs(fix func(field []byte) []byte) func(Format, []byte) []byte {
	return func(f Format, stateKey []byte) []byte {
		start, end, by := uuidFields(f, stateKey)
		event, action, ok := bytes.Cut(stateKey[start:end], []byte{by})
		if !ok {
			return nil
		}
		fixedEvent, fixedAction := fix(event), fix(action)
		if fixedEvent == nil && fixedAction == nil {
			return nil
		}
		if fixedEvent == nil {
			fixedEvent = event
		}
		if fixedAction == nil {
			fixedAction = action
		}
		return slices.Concat(stateKey[:start], fixedEvent, []byte{by}, fixedAction, stateKey[end:])
	}
}

// uuidFields returns where "event_action" stands in a key of format f, and what separates the two.
func uuidFields(f Format, stateKey []byte) (start, end int, by byte) {
	switch f.Name() {
	case nameKeyGroupLast, NameFlinkAgents04:
		start = afterNth(stateKey, 2)
		end = start + afterNth(stateKey[start:], 2)
		if end > start && stateKey[end-1] == '_' {
			end--
		}
		return start, end, '_'
	case nameLengthPrefixed:
		by = ':'
	default:
		by = '_'
	}
	action := bytes.LastIndexByte(stateKey, by)
	return bytes.LastIndexByte(stateKey[:max(action, 0)], by) + 1, len(stateKey), by
}

// afterNth returns the index just behind the n-th separator, the length if there are fewer.
func afterNth(text []byte, n int) int {
	at := 0
	for range n {
		i := bytes.IndexByte(text[at:], '_')
		if i < 0 {
			return len(text)
		}
		at += i + 1
	}
	return at
}

func lowerUUID(field []byte) []byte {
	lower := bytes.ToLower(field)
	if bytes.Equal(lower, field) {
		return nil
	}
	return lower
}

func unbraceUUID(field []byte) []byte {
	field, opened := bytes.CutPrefix(field, []byte("{"))
	field, closed := bytes.CutSuffix(field, []byte("}"))
	if !opened || !closed {
		return nil
	}
	return field
}

func cutURN(field []byte) []byte {
	const urn = "urn:uuid:"
	if len(field) < len(urn) || !bytes.EqualFold(field[:len(urn)], []byte(urn)) {
		return nil
	}
	return field[len(urn):]
}

func dashUUID(field []byte) []byte {
	if len(field) != 32 {
		return nil
	}
	return slices.Concat(field[:8], []byte("-"), field[8:12], []byte("-"), field[12:16], []byte("-"),
		field[16:20], []byte("-"), field[20:])
}

// restoreSeparators puts '_' on both sides of the event UUID, where it is gone or has become another
// character. UUIDs have a fixed length, so nothing is guessed. Between business key and sequence
// number it would be: "user12" says not where one ends.
func restoreSeparators(f Format, stateKey []byte) []byte {
	switch f.Name() {
	case nameLegacy, nameKeyGroupFirst, nameEscaped:
	default:
		return nil
	}
	rest, action := cutLastUUID(stateKey)
	rest, event := cutLastUUID(cutPunctuation(rest))
	if action == nil || event == nil {
		return nil
	}
	return slices.Concat(cutPunctuation(rest), separator, event, separator, action)
}

func cutLastUUID(text []byte) (before, last []byte) {
	at := len(text) - uuidLen
	var u uuid.UUID
	if at < 0 || !parseUUID(&u, text[at:]) {
		return text, nil
	}
	return text[:at], text[at:]
}

// cutPunctuation removes what may stand for a separator: the last byte, unless it is a letter or digit.
func cutPunctuation(text []byte) []byte {
	if n := len(text); n > 0 && text[n-1] < utf8.RuneSelf &&
		!unicode.IsLetter(rune(text[n-1])) && !unicode.IsDigit(rune(text[n-1])) {
		return text[:n-1]
	}
	return text
}
