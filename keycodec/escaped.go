package keycodec

import (
	"bytes"
	"unicode/utf8"
)

// Escaped is the default target:
//
//	escaped businessKey _ sequence _ event _ action
//
// In the business key '%' becomes "%25" and '_' becomes "%5F"; nothing else changes. A key therefore
// has exactly four fields, which is what the released runtime's split("_") wants, and the released
// partitioner hashes all of the business key. Where a business key has neither character the key is
// the legacy key, byte for byte.
var Escaped Format = escaped{}

type escaped struct{}

const nameEscaped = "escaped"

func (escaped) Name() string { return nameEscaped }

func (escaped) Parse(k *Key, stateKey []byte) error {
	if !parseEscaped(k, stateKey) {
		return diagnoseEscaped(stateKey)
	}
	return nil
}

func parseEscaped(k *Key, stateKey []byte) bool {
	k.reset()
	n, ok := parseTail(k, stateKey)
	if !ok {
		return false
	}
	text := stateKey[:n:n]
	if bytes.IndexByte(text, '_') >= 0 || !utf8.Valid(text) {
		return false
	}
	k.BusinessKey = text
	if bytes.IndexByte(text, '%') >= 0 {
		k.scratch, ok = unescape(k.scratch, text)
		k.BusinessKey = k.scratch
	}
	return ok
}

// unescape takes "%25" and "%5F" and no other spelling of anything: "%5f" would be a second name for
// the same business key.
func unescape(dst, text []byte) ([]byte, bool) {
	for {
		i := bytes.IndexByte(text, '%')
		if i < 0 {
			return append(dst, text...), true
		}
		dst = append(dst, text[:i]...)
		switch {
		case bytes.HasPrefix(text[i:], escapedSeparator):
			dst = append(dst, '_')
		case bytes.HasPrefix(text[i:], escapedPercent):
			dst = append(dst, '%')
		default:
			return dst, false
		}
		text = text[i+3:]
	}
}

// IsEscaped says whether text can be the business key of an escaped key: it holds no raw separator, and
// no other percent signs than those of escapes. It makes no error that nobody reads.
func IsEscaped(text []byte) bool {
	if bytes.IndexByte(text, '_') >= 0 || !utf8.Valid(text) {
		return false
	}
	for {
		i := bytes.IndexByte(text, '%')
		if i < 0 {
			return true
		}
		if text = text[i:]; !bytes.HasPrefix(text, escapedSeparator) && !bytes.HasPrefix(text, escapedPercent) {
			return false
		}
		text = text[3:]
	}
}

var (
	escapedSeparator = []byte("%5F")
	escapedPercent   = []byte("%25")
)

func diagnoseEscaped(stateKey []byte) *ParseError {
	if err := diagnoseWhole(nameEscaped, stateKey); err != nil {
		return err
	}
	n, ok := parseTail(new(Key), stateKey)
	if !ok {
		return diagnoseTail(nameEscaped, stateKey)
	}
	at, detail := faultInEscaped(stateKey[:n])
	return &ParseError{nameEscaped, BadEscape, FieldBusinessKey, at, detail}
}

// faultInEscaped returns where text stops being an escaped business key, and how; text must not be one.
func faultInEscaped(text []byte) (int, string) {
	at := bytes.IndexAny(text, "_%")
	for bytes.HasPrefix(text[at:], escapedSeparator) || bytes.HasPrefix(text[at:], escapedPercent) {
		at += len(escapedPercent) + bytes.IndexAny(text[at+len(escapedPercent):], "_%")
	}
	switch {
	case text[at] == '_':
		return at, "expected four fields, and so no '_' in the business key except as %5F; a legacy key has it raw"
	case bytes.HasPrefix(text[at:], []byte("%5f")):
		return at, "expected %5F in upper case, found %5f"
	}
	return at, "expected %25 or %5F, found a '%' that begins neither"
}

func (escaped) Append(dst []byte, k *Key) ([]byte, error) {
	if err := k.checkText(nameEscaped); err != nil {
		return dst, err
	}
	return appendTail(appendEscaped(dst, k.BusinessKey), k), nil
}

func appendEscaped(dst, text []byte) []byte {
	copied := 0
	for i, c := range text {
		var replacement []byte
		switch c {
		case '_':
			replacement = escapedSeparator
		case '%':
			replacement = escapedPercent
		default:
			continue
		}
		dst = append(append(dst, text[copied:i]...), replacement...)
		copied = i + 1
	}
	return append(dst, text[copied:]...)
}

func (escaped) PartitionText(stateKey []byte, _ *Key) []byte { return firstField(stateKey) }
