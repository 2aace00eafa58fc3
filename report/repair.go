package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Repair is a line of repairs.jsonl: what to do with one key that cannot be
// parsed. Decision is "rewrite", "drop" or "copy"; the four fields of a state
// key are there for rewrite only.
type Repair struct {
	Decision    string  `json:"decision"`
	KeyBase64   *string `json:"key_base64"` // null for the null key
	Key         string  `json:"key"`        // printable form, for the reviewer
	BusinessKey *string `json:"business_key,omitempty"`
	Sequence    *int64  `json:"sequence,omitempty"`
	EventUUID   string  `json:"event_uuid,omitempty"`
	ActionUUID  string  `json:"action_uuid,omitempty"`
}

// Bytes is the key itself, nil for the null key; see BadKey.Bytes.
func (r *Repair) Bytes() ([]byte, error) { return keyBytes(r.KeyBase64, r.Key) }

// ReadRepairs hands the lines of a repairs file to take, one after the other,
// with their numbers. Errors, those of take too, name the line. Unknown and repeated fields are
// errors, as is a printable form that does not fit its base64.
func ReadRepairs(r io.Reader, take func(line int, r Repair) error) error {
	for _, err := range readLines(r, func(number int, line *Repair) error {
		if _, err := line.Bytes(); err != nil {
			return err
		}
		return take(number, *line)
	}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteRepair writes r as one line of JSON.
func WriteRepair(w io.Writer, r Repair) error { return writeLine(w, r) }

// RepairFor is the line that carries out a decision on b. "rewrite" takes the
// fields of the suggestion and is an error without one; "copy" is an error for
// the null key, which a compacted topic does not take.
func RepairFor(b BadKey, decision string) (Repair, error) {
	r := Repair{Decision: decision, KeyBase64: b.KeyBase64, Key: b.Key}
	switch decision {
	case "rewrite":
		s := b.Suggestion
		if s == nil {
			return Repair{}, fmt.Errorf("key %s: nothing is suggested to rewrite it to", Shorten(b.Key, 60))
		}
		if !utf8.ValidString(s.BusinessKey) {
			return Repair{}, fmt.Errorf("key %s: the suggested business key is not UTF-8", Shorten(b.Key, 60))
		}
		bk, seq := s.BusinessKey, s.Sequence
		r.BusinessKey, r.Sequence, r.EventUUID, r.ActionUUID = &bk, &seq, s.EventUUID, s.ActionUUID
	case "copy":
		if b.KeyBase64 == nil {
			return Repair{}, errors.New("the null key cannot be copied: a compacted topic refuses it")
		}
	case "drop":
	default:
		return Repair{}, fmt.Errorf("unknown decision %s: rewrite, drop or copy", Printable([]byte(decision)))
	}
	return r, nil
}

// Line is r as one line of JSON, without a line feed at its end.
func (r Repair) Line() (string, error) {
	line, err := marshal(r, "")
	return string(bytes.TrimSuffix(line, []byte("\n"))), err
}
