package report

import (
	"fmt"
	"io"
	"strconv"
)

// Explanation says how one state key parses, what it becomes, and where it
// lands: the answer of rekey explain.
type Explanation struct {
	Schema    int     `json:"schema_version"`
	Key       string  `json:"key"` // printable form
	KeyBase64 *string `json:"key_base64"`
	From      string  `json:"from"`
	To        string  `json:"to"`
	Parses    bool    `json:"parses"`

	// Of a key that parses.
	BusinessKey       string    `json:"business_key,omitempty"` // printable form
	BusinessKeyBase64 string    `json:"business_key_base64,omitempty"`
	Sequence          int64     `json:"sequence"`
	EventUUID         string    `json:"event_uuid,omitempty"`
	ActionUUID        string    `json:"action_uuid,omitempty"`
	Traits            []string  `json:"traits"`
	ActionUnnamed     bool      `json:"action_unnamed,omitempty"` // the target wants another action UUID: see --actions
	NewKey            string    `json:"new_key,omitempty"`        // printable form
	NewKeyBase64      string    `json:"new_key_base64,omitempty"`
	FlinkKey          *FlinkKey `json:"flink_key,omitempty"` // with the target flink-agents-0.4
	Partitions        int32     `json:"partitions"`
	Before            *int32    `json:"partition_before"` // null: the released partitioner refuses the key
	After             *int32    `json:"partition_after"`

	// Of a key that does not.
	Reason     string      `json:"reason,omitempty"`
	Meaning    string      `json:"meaning,omitempty"`
	Field      string      `json:"field,omitempty"`
	Byte       int         `json:"byte"`
	Detail     string      `json:"detail,omitempty"`
	Suggestion *Suggestion `json:"suggestion,omitempty"`
}

// FlinkKey is the job's key that printed the business key, as Flink knows it.
type FlinkKey struct {
	Type       string `json:"key_type"`
	Serialized string `json:"serialized_hex"`
	HashCode   int32  `json:"hash_code"`
	KeyGroup   int32  `json:"key_group"`
	Digest     string `json:"digest"` // base64 of the SHA-256 of the serialized form
}

// WriteText writes the explanation for people.
func (e *Explanation) WriteText(w io.Writer, st Style) error {
	p := newPage(st)
	p.line(p.paint(bold, e.Key))
	if !e.Parses {
		p.pair("cannot parse", fmt.Sprintf("as %s: %s (%s, byte %d)", e.From, e.Detail, e.Reason, e.Byte))
		p.pair("that means", e.Meaning)
		if e.Suggestion != nil {
			p.pair("perhaps", e.Suggestion.Text)
			p.pair("repaired", e.Suggestion.repaired())
		}
		return p.flush(w)
	}
	p.pair("business key", e.BusinessKey)
	p.pair("sequence", strconv.FormatInt(e.Sequence, 10))
	p.pair("event UUID", e.EventUUID)
	p.pair("action UUID", e.ActionUUID)
	for _, trait := range e.Traits {
		p.pair("deserves look", trait)
	}
	p.pair("becomes", e.NewKey)
	if k := e.FlinkKey; k != nil {
		p.pair("Flink key", fmt.Sprintf("%s, serialized %s, hash code %d, key group %d", k.Type, k.Serialized, k.HashCode, k.KeyGroup))
	}
	if e.ActionUnnamed {
		p.pair("not yet", "the action UUID is the old one; with --actions or --agent-plan it is that of the action's name")
	}
	p.pair("partition", fmt.Sprintf("%s of %d by the released partitioner, %s on the target", partitionWord(e.Before), e.Partitions, partitionWord(e.After)))
	return p.flush(w)
}

func partitionWord(p *int32) string {
	if p == nil {
		return "none (refused)"
	}
	return strconv.Itoa(int(*p))
}
