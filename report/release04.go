package report

import (
	"fmt"
	"io"
	"strings"
)

// Release04 is what only the target format flink-agents-0.4 raises: the type of
// the job's keys, the names of its actions, and which values that release reads.
type Release04 struct {
	KeyType        string `json:"key_type"`
	MaxParallelism int32  `json:"max_parallelism"`
	OnIncompatible string `json:"on_incompatible_value"`

	KeyLooks string         `json:"key_looks"` // what the business keys look like, in words
	Keys     []KeyExample   `json:"keys"`      // the first three business keys
	Actions  []ActionUse    `json:"actions"`   // by old action UUID, most records first, the first thousand
	Layouts  []NamedCount   `json:"layouts"`   // records by the layout of their value, tombstones left out
	Problems []ProblemCount `json:"problems"`  // records whose value release 0.4 cannot read, or not whole
}

// KeyExample is a business key with what it becomes.
type KeyExample struct {
	BusinessKey string   `json:"business_key"` // printable form
	At          Position `json:"at"`
	Becomes     string   `json:"becomes"` // key group and digest; empty for one that the key type does not print
	Partition   int32    `json:"partition"`
}

// ActionUse is what the topic holds of one old action UUID. The timestamps are
// -1 if no record has any.
type ActionUse struct {
	UUID    string       `json:"uuid"`
	Name    string       `json:"name"`     // empty: nobody named it
	NewUUID string       `json:"new_uuid"` // empty: nobody named it
	Records int64        `json:"records"`
	First   int64        `json:"first_timestamp_ms"`
	Last    int64        `json:"last_timestamp_ms"`
	Events  []NamedCount `json:"event_types"` // of the events that the action was for, most records first
}

// ProblemCount counts the records whose value has one problem.
type ProblemCount struct {
	Problem string   `json:"problem"`
	Meaning string   `json:"meaning"`
	Records int64    `json:"records"`
	First   Position `json:"first"`
}

// IncompatibleValue is a line of incompatible-values.jsonl: a record whose value
// release 0.4 cannot read, or not whole.
type IncompatibleValue struct {
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	KeyBase64 *string `json:"key_base64"`
	Key       string  `json:"key"` // printable form
	Layout    string  `json:"layout"`
	Problem   string  `json:"problem"`
	Decision  string  `json:"decision"` // refuse, quarantine, rewrite, omit
}

// WriteActionsTemplate writes a file for --actions, to be filled in: one line for
// each old action UUID with the name that is known, or none.
func WriteActionsTemplate(w io.Writer, uses []ActionUse) error {
	names := make(map[string]string, len(uses))
	for _, use := range uses {
		names[use.UUID] = use.Name
	}
	return WriteJSON(w, names)
}

// events lists event types in words.
func (a *ActionUse) events() string {
	if len(a.Events) == 0 {
		return "no event type seen"
	}
	parts := make([]string, len(a.Events))
	for i, e := range a.Events {
		parts[i] = fmt.Sprintf("%s (%s)", plain(e.Name), thousands(e.Count))
	}
	return strings.Join(parts, ", ")
}

// span is from when to when an action was used.
func (a *ActionUse) span() string {
	if a.First < 0 {
		return "no timestamps"
	}
	return moment(a.First) + " to " + moment(a.Last)
}

func (r *Report) release04Text(p *page) {
	x := r.Release04
	if x == nil {
		return
	}
	p.heading("WHAT RELEASE 0.4 WILL FIND")
	p.pair("key type", fmt.Sprintf("%s, max parallelism %d", plain(x.KeyType), x.MaxParallelism))
	p.para(2, capital(x.KeyLooks)+".")
	for _, k := range x.Keys {
		becomes := "cannot be a key of this type"
		if k.Becomes != "" {
			becomes = fmt.Sprintf("becomes %s on partition %d", k.Becomes, k.Partition)
		}
		p.para(4, Shorten(k.BusinessKey, p.width-4))
		p.para(6, becomes)
	}
	p.blank()
	p.para(2, "Actions, by the UUID that the old topic has:")
	for i, a := range x.Actions {
		if i == textDecided {
			p.para(4, fmt.Sprintf("and %d more in report.json", len(x.Actions)-i))
			break
		}
		name := "nobody named it"
		if a.Name != "" {
			name = Printable([]byte(a.Name)) + ", now " + a.NewUUID
		}
		p.para(4, fmt.Sprintf("%s: %s", plain(a.UUID), name))
		p.para(8, fmt.Sprintf("%s, %s; %s", records(a.Records), a.span(), a.events()))
	}
	p.blank()
	t := table{cols: []column{{head: "values of layout"}, {head: "records", right: true}}}
	for _, l := range x.Layouts {
		t.add(plain(l.Name), thousands(l.Count))
	}
	p.table(t)
	for _, problem := range x.Problems {
		p.para(2, fmt.Sprintf("%s, the first at %s: %s (%s)", records(problem.Records), problem.First, problem.Meaning, plain(problem.Problem)))
	}
	if len(x.Problems) > 0 {
		p.para(2, "incompatible-values.jsonl lists each of these records.")
	}
}
