package report

import (
	"errors"
	"io"
)

// Prune is a line of prune.jsonl: forget the entries of a business key up to and
// including a sequence number.
type Prune struct {
	BusinessKey *string `json:"business_key"`
	Sequence    *int64  `json:"sequence"`
}

// ReadPrunes hands the lines of a prune list to take, one after the other.
// Errors, those of take too, name the line. Unknown, repeated and missing fields
// are errors.
func ReadPrunes(r io.Reader, take func(businessKey string, sequence int64) error) error {
	for _, err := range readLines(r, func(_ int, line *Prune) error {
		switch {
		case line.BusinessKey == nil:
			return errors.New("business_key is missing")
		case line.Sequence == nil:
			return errors.New("sequence is missing")
		}
		return take(*line.BusinessKey, *line.Sequence)
	}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// WritePrune writes one line of a prune list.
func WritePrune(w io.Writer, businessKey string, sequence int64) error {
	return writeLine(w, Prune{&businessKey, &sequence})
}
