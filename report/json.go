package report

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// WriteJSON writes v as one indented JSON document with a line feed at its end.
//
// The same value gives the same bytes: fields stand in the order of the struct,
// times are in UTC, and a list is [] when it is nil, never null. Text is as
// readable as it can safely be: no HTML escapes, but what a terminal would hide
// or reorder stands as \u escapes. A byte that is not UTF-8, as a path may have
// one, stands as the text \xFF; keys have their base64.
func WriteJSON(w io.Writer, v any) error {
	b, err := marshal(v, "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func marshal(v any, indent string) ([]byte, error) {
	full, err := fill(reflect.ValueOf(v), 0)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	var x any
	if full.IsValid() {
		x = full.Interface()
	}
	if err := enc.Encode(x); err != nil {
		return nil, err
	}
	return escapeHidden(b.Bytes()), nil
}

// maxDepth bounds the walk through a value. The documents are five deep; a value
// that is deeper points at itself.
const maxDepth = 100

var (
	timeType      = reflect.TypeFor[time.Time]()
	marshalerType = reflect.TypeFor[json.Marshaler]()
)

// fill copies v with empty slices in place of nil ones, for readers that walk a
// list without asking first whether there is one.
func fill(v reflect.Value, depth int) (reflect.Value, error) {
	if depth > maxDepth {
		return v, errors.New("value nests too deep for JSON")
	}
	if !v.IsValid() {
		return v, nil
	}
	if v.Type() == timeType {
		return reflect.ValueOf(v.Interface().(time.Time).UTC()), nil
	}
	if v.Type().Implements(marshalerType) {
		return v, nil
	}
	switch v.Kind() {
	case reflect.String:
		if utf8.ValidString(v.String()) {
			return v, nil
		}
		c := reflect.New(v.Type()).Elem()
		c.SetString(plain(v.String()))
		return c, nil
	case reflect.Pointer:
		if v.IsNil() {
			return v, nil
		}
		e, err := fill(v.Elem(), depth+1)
		if err != nil {
			return v, err
		}
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(e)
		return p, nil
	case reflect.Interface:
		if v.IsNil() {
			return v, nil
		}
		return fill(v.Elem(), depth+1)
	case reflect.Struct:
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			f, err := fill(v.Field(i), depth+1)
			if err != nil {
				return v, err
			}
			if f.IsValid() {
				c.Field(i).Set(f)
			}
		}
		return c, nil
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v, nil // bytes: base64 or null, and null means something
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			e, err := fill(v.Index(i), depth+1)
			if err != nil {
				return v, err
			}
			if e.IsValid() {
				c.Index(i).Set(e)
			}
		}
		return c, nil
	case reflect.Map:
		if v.IsNil() {
			return v, nil
		}
		c := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			e, err := fill(it.Value(), depth+1)
			if err != nil {
				return v, err
			}
			if e.IsValid() {
				c.SetMapIndex(it.Key(), e)
			}
		}
		return c, nil
	}
	return v, nil
}

// escapeHidden replaces what must not be shown as itself by \u escapes. It works
// on encoded JSON: there such characters occur inside of strings only, where the
// escape means the same.
func escapeHidden(doc []byte) []byte {
	hidden := func(r rune) bool { return r != '\n' && r != 0x2026 && !visible(r) }
	if bytes.IndexFunc(doc, hidden) < 0 {
		return doc
	}
	out := make([]byte, 0, len(doc)+64)
	for len(doc) > 0 {
		r, n := utf8.DecodeRune(doc)
		switch {
		case !hidden(r):
			out = append(out, doc[:n]...)
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		doc = doc[n:]
	}
	return out
}

// VersionError says that a document has a schema version that this release does
// not read.
type VersionError struct {
	Document string // "report", "apply record" or "verify record"
	Got      int    // 0 if the document names none
}

func (e *VersionError) Error() string {
	if e.Got == 0 {
		return fmt.Sprintf("%s has no schema_version; is it a file of rekey?", e.Document)
	}
	if e.Got > SchemaVersion {
		return fmt.Sprintf("%s has schema version %d, this release of rekey reads version %d: use the newer release that wrote it",
			e.Document, e.Got, SchemaVersion)
	}
	return fmt.Sprintf("%s has schema version %d, this release of rekey reads version %d: use the older release that wrote it, or plan again",
		e.Document, e.Got, SchemaVersion)
}

// ReadReport reads what WriteJSON wrote for a Report. An unknown or repeated
// field, a second document behind the first, or another schema version is an
// error: a document that is only half understood must not be shown as whole.
func ReadReport(r io.Reader) (*Report, error) { return read[Report](r, "report") }

// ReadApply reads apply.json, as strictly as ReadReport.
func ReadApply(r io.Reader) (*Apply, error) { return read[Apply](r, "apply record") }

// ReadVerify reads verify.json, as strictly as ReadReport.
func ReadVerify(r io.Reader) (*Verify, error) { return read[Verify](r, "verify record") }

func read[T any](r io.Reader, what string) (*T, error) {
	doc, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	// The version first: a document of another version may have other fields,
	// and "unknown field" would send its reader the wrong way.
	var v struct {
		Schema int `json:"schema_version"`
	}
	if err := json.Unmarshal(doc, &v); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if v.Schema != SchemaVersion {
		return nil, &VersionError{Document: what, Got: v.Schema}
	}
	t := new(T)
	if err := strict(doc, t); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return t, nil
}

// strict decodes exactly one JSON value without unknown or repeated fields.
func strict(doc []byte, v any) error {
	if err := noRepeats(json.NewDecoder(bytes.NewReader(doc)), 0); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more data after the end of the document")
	}
	return nil
}

// noRepeats walks over one JSON value and refuses an object that has a field
// twice. The decoder would take the last one and, since it ignores case, would
// take "Records" for "records".
func noRepeats(dec *json.Decoder, depth int) error {
	if depth > maxDepth {
		return errors.New("nested too deep")
	}
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	open, ok := tok.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for dec.More() {
		if open == '{' {
			tok, err := dec.Token()
			if err != nil {
				return err
			}
			name, _ := tok.(string)
			if low := strings.ToLower(name); seen[low] {
				return fmt.Errorf("field %s twice", Printable([]byte(name)))
			} else {
				seen[low] = true
			}
		}
		if err := noRepeats(dec, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token() // the closing one
	return err
}

// lossless refuses what the decoder would turn into U+FFFD without a word: bytes
// that are not UTF-8, and half of a surrogate pair. Two keys would become one.
func lossless(line []byte) error {
	if !utf8.Valid(line) {
		return errors.New("it is not UTF-8")
	}
	for i := 0; i+1 < len(line); i++ {
		if line[i] != '\\' {
			continue
		}
		i++ // whatever is escaped, a backslash too
		if first := escaped(line[i:]); utf16.IsSurrogate(first) {
			rest := bytes.TrimPrefix(line[min(i+5, len(line)):], []byte{'\\'})
			if utf16.DecodeRune(first, escaped(rest)) == utf8.RuneError {
				return errors.New("it has half of a surrogate pair, which is no character")
			}
			i += 6
		}
	}
	return nil
}

// escaped is the number behind the u of an escape, or -1.
func escaped(text []byte) rune {
	if len(text) < 5 || text[0] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[1:5]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// NewBadKey starts a BadKey with the two forms of its key. A nil key is the null
// key.
func NewBadKey(key []byte) BadKey {
	return BadKey{KeyBase64: encodeKey(key), Key: Printable(key)}
}

func encodeKey(key []byte) *string {
	if key == nil {
		return nil
	}
	s := base64.StdEncoding.EncodeToString(key)
	return &s
}

// Bytes is the key itself, nil for the null key. It refuses a line whose
// printable form is of another key: a person decides by what is printed, and
// the decision must not fall on something else.
func (b *BadKey) Bytes() ([]byte, error) { return keyBytes(b.KeyBase64, b.Key) }

func keyBytes(b64 *string, printable string) ([]byte, error) {
	var key []byte
	if b64 != nil {
		var err error
		// Strict, because without it two texts stand for one key.
		if key, err = base64.StdEncoding.Strict().DecodeString(*b64); err != nil {
			return nil, fmt.Errorf("key_base64: %w", err)
		}
	}
	if want := Printable(key); printable != want {
		return nil, fmt.Errorf("key is %s, but key_base64 is %s",
			Shorten(form(printable), 60), Shorten(want, 60))
	}
	return key, nil
}

// WriteBadKey writes b as one line of JSON.
func WriteBadKey(w io.Writer, b BadKey) error { return writeLine(w, b) }

func writeLine(w io.Writer, v any) error {
	line, err := marshal(v, "")
	if err != nil {
		return err
	}
	_, err = w.Write(line)
	return err
}

// ReadBadKeys reads the lines of unparseable.jsonl one after the other, so that
// a file of any length takes the memory of one line. The first error ends it; it
// names the line. Unknown and repeated fields are errors, as is a printable form
// that does not fit its base64.
func ReadBadKeys(r io.Reader) iter.Seq2[BadKey, error] {
	return readLines(r, func(_ int, b *BadKey) error { _, err := b.Bytes(); return err })
}

func readLines[T any](r io.Reader, check func(line int, t *T) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		br := bufio.NewReader(r)
		for n := 1; ; n++ {
			line, err := br.ReadBytes('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				yield(*new(T), fmt.Errorf("line %d: %w", n, err))
				return
			}
			last := err != nil
			if len(bytes.TrimSpace(line)) > 0 {
				var t T
				err := lossless(line)
				if err == nil {
					err = strict(line, &t)
				}
				if err == nil {
					err = check(n, &t)
				}
				if err != nil {
					yield(*new(T), fmt.Errorf("line %d: %w", n, err))
					return
				}
				if !yield(t, nil) {
					return
				}
			}
			if last {
				return
			}
		}
	}
}
