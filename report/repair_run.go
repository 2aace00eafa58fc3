package report

import (
	"fmt"
	"io"
)

// RepairRun is what one run of repair did to repairs.jsonl.
type RepairRun struct {
	Schema            int           `json:"schema_version"`
	Tool              string        `json:"tool"`
	PlanID            string        `json:"plan_id"`
	File              string        `json:"file"`
	Before            int64         `json:"decided_before"`
	Added             int64         `json:"added"`
	Kept              int64         `json:"kept"`               // keys that were decided on already
	WithoutSuggestion int64         `json:"without_suggestion"` // keys of an accepted reason that nothing is suggested for
	Replaced          []Replaced    `json:"replaced"`           // decisions that a line made by hand changed
	Lines             int64         `json:"lines"`              // in the file now
	Remaining         []ReasonCount `json:"remaining"`          // keys without a decision, by reason
	Next              []string      `json:"next"`
}

// Replaced is a decision that was changed.
type Replaced struct {
	Key string `json:"key"` // printable form
	Was string `json:"was"`
	Now string `json:"now"`
}

// WriteSummary says what was done, and what is left to decide.
func (r *RepairRun) WriteSummary(w io.Writer, st Style) error {
	p := newPage(st)
	p.title("rekey repair", r.Tool)
	p.heading("DECISIONS")
	p.factTable(keep(1, []fact{
		{"added", r.Added, "keys decided on now", false},
		{"kept", r.Kept, "keys decided on before; accepting a reason changes none of them", false},
		{"no suggestion", r.WithoutSuggestion, "keys of an accepted reason that nothing is suggested for", true},
		{"changed", int64(len(r.Replaced)), "keys decided on before, and now by hand in another way", true},
		{"in the file", r.Lines, "keys; " + plain(r.File), false},
	}))
	for _, x := range r.Replaced {
		p.para(4, fmt.Sprintf("changed: %s, was %s, now %s", Shorten(x.Key, p.width-40), plain(x.Was), plain(x.Now)))
	}
	p.heading("STILL TO DECIDE")
	if len(r.Remaining) == 0 {
		p.para(2, "Nothing: every key that cannot be parsed has a decision.")
	}
	for _, c := range r.Remaining {
		p.para(2, fmt.Sprintf("%s: %s, %s", plain(c.Reason), plural(c.Keys, "key", "keys"), records(c.Records)))
	}
	p.heading("WHAT TO DO")
	for _, next := range r.Next {
		p.bullet(next)
	}
	return p.flush(w)
}
