package report

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Rehearse is the evidence of one run of rehearse: rehearse.json. It says, for
// each marker under the rules of each runtime, whether a job that recovers from
// the new topic sees the states that it would see on the old one.
type Rehearse struct {
	Schema     int         `json:"schema_version"`
	Tool       string      `json:"tool"`
	PlanID     string      `json:"plan_id"`
	Source     Topic       `json:"source"`
	Target     Topic       `json:"target"`
	StartedAt  time.Time   `json:"started_at"`
	FinishedAt time.Time   `json:"finished_at"`
	Passed     bool        `json:"passed"` // every rehearsal passed
	Rehearsals []Rehearsal `json:"rehearsals"`
	Translated string      `json:"translated_markers"` // the file that holds the markers as positions of the new topic
	Findings   []Finding   `json:"findings"`
	Next       []string    `json:"next"`
	Rollback   string      `json:"rollback"`
}

// Rehearsal is one marker under the rules of one runtime. All counts are of
// state keys unless they say otherwise.
type Rehearsal struct {
	Runtime string     `json:"runtime"`
	Marker  string     `json:"marker"`  // the file, or "at-end"
	Markers int        `json:"markers"` // how many the file holds, one from each subtask
	Offsets []Position `json:"offsets"` // their lowest offset of each partition
	Passed  bool       `json:"passed"`
	Summary string     `json:"summary"` // one sentence for people

	Source Replay `json:"source"`
	Target Replay `json:"target"`

	Same        int64 `json:"same"`        // the same state on both
	Lost        int64 `json:"lost"`        // on the old topic only
	Different   int64 `json:"different"`   // on both, with other bytes; or deleted on the old topic only
	Confusable  int64 `json:"confusable"`  // on the new topic only, and the job could take them for its own
	Older       int64 `json:"extra_older"` // on the new topic only, harmless: the job is past them
	Restarted   int64 `json:"restarted"`   // of those, above the last sequence number of their business key: from before it started again
	Undefined   int64 `json:"undefined"`   // on several partitions of the old topic, so that even there the outcome depends on timing
	Repaired    int64 `json:"repaired"`    // under a key that could not be parsed before a repair
	Unparseable int64 `json:"unparseable"` // read from the old topic, cannot be parsed, left out of the comparison

	Examples []StateDifference `json:"examples"` // the first few lost, different and confusable ones
}

// Replay is what a recovery reads from one topic.
type Replay struct {
	Records   int64 `json:"records"`           // padding left out
	States    int64 `json:"states"`            // what the recovered job has, by parsed key
	Malformed int64 `json:"malformed_records"` // with a key that the runtime itself cannot take apart
	// Of runtime 0.4 alone: with a value that it cannot read, and, on the source,
	// that the plan leaves out for another run's sake or for their value.
	Unreadable int64 `json:"unreadable_records,omitempty"`
	LeftOut    int64 `json:"left_out_records,omitempty"`

	Effects []Effect `json:"effects"`
}

// Effect is what a runtime does beside recovering states.
type Effect struct {
	Code      string `json:"code"` // see the Effect constants
	Partition *int32 `json:"partition,omitempty"`
	Text      string `json:"text"`
}

// The codes of effects, a closed list.
const (
	EffectRestart   = "restart-at-beginning" // the offset lies outside of the log: all of the partition is read
	EffectSkip      = "skip-partition"       // the marker does not name the partition: nothing of it is read
	EffectMalformed = "malformed-keys"       // keys that the runtime loads and that break its lookups later
	EffectAbort     = "abort"                // recovery fails at a key
	EffectRefuse    = "refuse"               // recovery does not begin
)

// Stops says whether the job does not start with this effect.
func (e Effect) Stops() bool { return e.Code == EffectAbort || e.Code == EffectRefuse }

// StateDifference is one state on which the two replays do not agree.
type StateDifference struct {
	Kind        string    `json:"kind"`         // lost, different, confusable
	Key         string    `json:"key"`          // printable form, of the topic where it was found
	BusinessKey string    `json:"business_key"` // printable form
	Sequence    int64     `json:"sequence"`
	Source      *Position `json:"source,omitempty"` // of the last record of the key
	Target      *Position `json:"target,omitempty"`
	Text        string    `json:"text"`
}

// The kinds of StateDifference.
const (
	KindLost       = "lost"
	KindDifferent  = "different"
	KindConfusable = "confusable"
)

// Markers is translated-markers.json: recovery markers of the old topic as
// positions of the new one.
type Markers struct {
	Schema  int                `json:"schema_version"`
	Status  string             `json:"status"` // always MarkersStatus
	PlanID  string             `json:"plan_id"`
	Topic   string             `json:"topic"` // the new one
	TopicID string             `json:"topicId"`
	Markers []TranslatedMarker `json:"markers"`
}

// MarkersStatus says what the translated markers are: nobody has put them into
// a savepoint.
const MarkersStatus = "computed, not applied"

// TranslatedMarker is one marker. Its offsets are by partition number, as in
// the file it came from.
type TranslatedMarker struct {
	Marker  string           `json:"marker"` // the file, or "at-end"
	From    map[string]int64 `json:"source_offsets"`
	Offsets map[string]int64 `json:"offsets"` // of the new topic
}

// ReadRehearse reads rehearse.json, as strictly as ReadReport.
func ReadRehearse(r io.Reader) (*Rehearse, error) { return read[Rehearse](r, "rehearse record") }

// WriteText writes the evidence of rehearse.
func (r *Rehearse) WriteText(w io.Writer, st Style) error { return r.write(w, st, 60, 200) }

// WriteSummary writes what fits a screen: the first examples only.
func (r *Rehearse) WriteSummary(w io.Writer, st Style) error { return r.write(w, st, 2, 3) }

func (r *Rehearse) write(w io.Writer, st Style, examples, effects int) error {
	p := newPage(st)
	p.title(fmt.Sprintf("rekey rehearse  %s -> %s", plain(r.Source.Name), plain(r.Target.Name)), r.Tool)
	failed := 0
	for i := range r.Rehearsals {
		if !r.Rehearsals[i].Passed {
			failed++
		}
	}
	if r.Passed {
		p.banner("RECOVERS", green, fmt.Sprintf("The job recovers from the new topic as from the old one: %s.", plural(int64(len(r.Rehearsals)), "rehearsal", "rehearsals")))
	} else {
		p.banner("FAILS", red, fmt.Sprintf("The job does not recover from the new topic as from the old one: %d of %s failed.", failed, plural(int64(len(r.Rehearsals)), "rehearsal", "rehearsals")))
	}
	p.heading("WHAT TO DO")
	p.commands(r.Next)
	p.rollback(r.Rollback)
	for i := range r.Rehearsals {
		r.Rehearsals[i].text(p, examples, effects)
	}
	p.findings(r.Findings)
	p.heading("TOPICS")
	p.topic("old", r.Source)
	p.topic("new", r.Target)
	p.pair("markers", r.Translated+" holds the same markers as positions of the new topic: "+MarkersStatus)
	p.pair("took", clock(r.FinishedAt.Sub(r.StartedAt)))
	p.pair("started", stamp(r.StartedAt))
	p.pair("plan id", r.PlanID)
	return p.flush(w)
}

// text writes one rehearsal.
func (r *Rehearsal) text(p *page, examples, effects int) {
	p.heading(fmt.Sprintf("RUNTIME %s, MARKER %s", plain(r.Runtime), plain(r.Marker)))
	word, code := "pass", green
	if !r.Passed {
		word, code = "FAIL", red
	}
	p.hangColor(2, word, 6, code, sentence(plain(r.Summary)))
	p.factTable(keep(1, []fact{
		{"same", r.Same, "states that the job sees on both topics", false},
		{"lost", r.Lost, "on the old topic only", r.Lost > 0},
		{"different", r.Different, "not the same bytes on both", r.Different > 0},
		{"confusable", r.Confusable, "on the new topic only; the job could take them for its own", r.Confusable > 0},
		{"older", r.Older, "on the new topic only; the job is past them", false},
		{"undefined", r.Undefined, "on several old partitions: even there the outcome depends on timing", false},
		{"repaired", r.Repaired, "keys that the old job cannot use and the new one can", false},
		{"unparseable", r.Unparseable, "on the old topic, not copied, left out here", false},
		{"left out", r.Source.LeftOut, "records of the old topic: of a run that gave way, or with a value that 0.4 cannot read", false},
	}))
	r.Source.text(p, "old", effects)
	r.Target.text(p, "new", effects)
	for i, e := range r.Examples {
		if i == examples {
			p.para(2, fmt.Sprintf("and %s more; rehearse.json has the first %d", thousands(r.Lost+r.Different+r.Confusable-int64(i)), len(r.Examples)))
			break
		}
		p.hangColor(2, plain(e.Kind), 12, red, Shorten(e.Key, p.width-16))
		place := make([]string, 0, 2)
		if e.Source != nil {
			place = append(place, "old "+e.Source.String())
		}
		if e.Target != nil {
			place = append(place, "new "+e.Target.String())
		}
		if len(place) > 0 {
			p.hang(2, "", 12, strings.Join(place, ", "))
		}
		p.hang(2, "", 12, plain(e.Text))
	}
}

// text writes what a runtime does on one topic beside recovering states.
func (r *Replay) text(p *page, topic string, most int) {
	for i, e := range r.Effects {
		if i == most {
			p.hang(2, "", 12, fmt.Sprintf("and %d more in rehearse.json", len(r.Effects)-i))
			return
		}
		code := yellow
		if e.Stops() {
			code = red
		}
		p.hangColor(2, topic+" topic", 12, code, capital(plain(e.Text)))
	}
}
