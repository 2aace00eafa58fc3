package migrate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"rekey/report"
	"rekey/rewrite"
)

// planSchema is the version of plan.json.
const planSchema = 1

// plan is the content of plan.json: everything that apply, verify and rehearse
// need to know, and nothing secret. Its id seals it: a plan that was edited by
// hand is refused.
type plan struct {
	Schema    int        `json:"schema_version"`
	ID        string     `json:"plan_id"` // SHA-256 over the rest, see seal
	Tool      string     `json:"tool"`
	CreatedAt time.Time  `json:"created_at"`
	Source    planSource `json:"source"`
	Target    planTarget `json:"target"`
	// Quarantine is the topic that quarantined records go to; nil for a file.
	Quarantine *planTarget `json:"quarantine_topic,omitempty"`
	IsAside    bool        `json:"-"` // the view of that topic, see aside.go

	From          string          `json:"from"`
	To            string          `json:"to"`
	Partitioner   string          `json:"partitioner"`
	OnUnparseable rewrite.Policy  `json:"on_unparseable"`
	History       rewrite.History `json:"history"`
	Align         string          `json:"align"`
	Isolation     string          `json:"isolation_level"`
	Compression   string          `json:"compression"`

	// Release04 is there for the target format of that release alone.
	Release04 *planRelease04 `json:"flink_agents_04,omitempty"`

	OnCollision string           `json:"on_collision"`
	Repairs     []report.Repair  `json:"repairs,omitempty"`      // in order of the key
	Claims      []claim          `json:"claims,omitempty"`       // target keys that could stand for two source keys
	Pruned      rewrite.PrunedAs `json:"pruned,omitempty"`       // with a prune rule; the list is in prune.jsonl
	PruneBefore []int64          `json:"prune_before,omitempty"` // by source partition

	Replays  []replay     `json:"replays,omitempty"` // of what was quarantined at first
	Extends  []string     `json:"extends,omitempty"` // ids of this plan before each extension and each replay
	Captures []capture    `json:"captures"`          // the first by plan, one more by each extension
	Refusals []refusal    `json:"refusals"`          // why apply must not run; empty when it may
	Files    []sealedFile `json:"files"`
}

type planSource struct {
	ClusterID  string `json:"cluster_id"`
	Topic      string `json:"topic"`
	TopicID    string `json:"topic_id,omitempty"`
	Partitions int32  `json:"partitions"`
	// DeleteRetentionMS is how long tombstones are kept at least: no read that
	// belongs together may take longer. -1 if they are kept for good.
	DeleteRetentionMS int64 `json:"delete_retention_ms"`
}

type planTarget struct {
	ClusterID   string          `json:"cluster_id"`
	Topic       string          `json:"topic"`
	TopicID     string          `json:"topic_id,omitempty"` // only if the topic existed, empty, when the plan was made
	Partitions  int32           `json:"partitions"`
	Replication int16           `json:"replication_factor"`
	Configs     []report.Config `json:"configs"` // to be in force after the copy
}

// capture is one reading of the source up to a captured end.
type capture struct {
	At     time.Time `json:"at"`
	Starts []int64   `json:"log_starts"` // by partition: where this capture begins
	Ends   []int64   `json:"log_ends"`   // by partition: one past its last offset
	// AlignTo is the next offset that each target partition must reach before
	// the first record of this capture is written; absent without alignment.
	AlignTo []int64 `json:"align_to,omitempty"`
	Records int64   `json:"records"`
	// RecordsBy counts them by source partition.
	RecordsBy []int64 `json:"records_by_partition"`
	Flows     []flow  `json:"flows"` // what belongs on the target, by pair of partitions
	// Extremes are of the records that belong on the target.
	Extremes extremes `json:"extremes"`
	// Aside and AsideExtremes are the same for the quarantine topic.
	Aside         []flow    `json:"quarantine_flows,omitempty"`
	AsideExtremes *extremes `json:"quarantine_extremes,omitempty"`
}

// extremes are the records that a target is most likely to refuse, with their
// places on the source.
type extremes struct {
	Records   int64           `json:"records"`
	Largest   int64           `json:"largest_record_bytes"` // on the target, before compression
	LargestAt report.Position `json:"largest_record_at"`
	// The timestamps other than -1; both -1 if there are none.
	Oldest   int64           `json:"oldest_timestamp_ms"`
	OldestAt report.Position `json:"oldest_timestamp_at"`
	Newest   int64           `json:"newest_timestamp_ms"`
	NewestAt report.Position `json:"newest_timestamp_at"`
}

// merge adds the extremes of other records.
func (e *extremes) merge(o extremes) {
	if e.Records == 0 {
		*e = o
		return
	}
	e.Records += o.Records
	if o.Largest > e.Largest {
		e.Largest, e.LargestAt = o.Largest, o.LargestAt
	}
	if o.Oldest != -1 && (e.Oldest == -1 || o.Oldest < e.Oldest) {
		e.Oldest, e.OldestAt = o.Oldest, o.OldestAt
	}
	if o.Newest > e.Newest {
		e.Newest, e.NewestAt = o.Newest, o.NewestAt
	}
}

// flow is what goes from one source partition to one target partition, with the
// copy itself or with one replay.
type flow struct {
	Round   int32 `json:"replay,omitempty"` // 0 is the copy itself
	Source  int32 `json:"source"`
	Target  int32 `json:"target"`
	Records int64 `json:"records"`
	First   int64 `json:"first_offset"` // of the source
	Last    int64 `json:"last_offset"`
}

// refusal is a reason why apply must not run, with the exit code it gives.
type refusal struct {
	Code string `json:"code"`
	Exit int    `json:"exit"`
	Text string `json:"text"`
}

// sealedFile binds another file of the run directory to the plan.
type sealedFile struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Lines  int64  `json:"lines"`
}

// rules are the rules of every decision under this plan. The prune list is read
// from its file, which checkFiles has compared with the plan.
func (p *plan) rules(dir runDir) (rewrite.Rules, error) {
	rules, err := p.sealedRules()
	if err == nil {
		rules.Prunes, err = p.prunes(dir)
	}
	return rules, err
}

// sealedRules are those that stand in plan.json itself.
func (p *plan) sealedRules() (rewrite.Rules, error) {
	rules, err := p.formats()
	if err != nil {
		return rewrite.Rules{}, err
	}
	repairs, err := p.repairSet(rules)
	if err != nil {
		return rewrite.Rules{}, err
	}
	repairs.into(&rules)
	rules.PruneBefore = p.PruneBefore
	rules.Losers, err = losers(p.Claims)
	return rules, err
}

// formats are the rules that need no file and no decision by hand.
func (p *plan) formats() (rewrite.Rules, error) {
	return PlanOptions{From: p.From, To: p.To, Partitioner: p.Partitioner, OnUnparseable: p.OnUnparseable, History: p.History,
		Pruned: p.Pruned, ForRelease04: p.Release04.options()}.rules(p.Target.Partitions)
}

// spans are the ranges of one capture, by source partition; empty ones are
// left out.
func (c *capture) spans() []Span {
	var spans []Span
	for p := range c.Ends {
		if c.Starts[p] < c.Ends[p] {
			spans = append(spans, Span{Partition: int32(p), From: c.Starts[p], To: c.Ends[p]})
		}
	}
	return spans
}

func (c *capture) positions() int64 {
	var n int64
	for _, span := range c.spans() {
		n += span.To - span.From
	}
	return n
}

// ends are the latest captured ends.
func (p *plan) ends() []int64 { return p.Captures[len(p.Captures)-1].Ends }

// starts are the first captured log starts: what verify needs to read again.
func (p *plan) starts() []int64 { return p.Captures[0].Starts }

// seal computes the id: SHA-256 over the plan's indented JSON with an empty
// id. White space and order of a stored plan do not matter; its content does.
func (p *plan) seal() error {
	unsealed := *p
	unsealed.ID = ""
	content, err := json.Marshal(unsealed)
	if err != nil {
		return fmt.Errorf("seal the plan: %w", err)
	}
	sum := sha256.Sum256(content)
	p.ID = hex.EncodeToString(sum[:])
	return nil
}

// writePlan seals a plan and writes it.
func (d runDir) writePlan(p *plan) error {
	if err := p.seal(); err != nil {
		return err
	}
	return d.write(planFileName, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(p)
	})
}

// openPlan reads a plan to be carried out or looked at: one that is not refused,
// with the files that belong to it, and the rules that they make.
func (d runDir) openPlan() (*plan, rewrite.Rules, error) {
	p, err := d.readPlan()
	if err != nil {
		return nil, rewrite.Rules{}, err
	}
	if err := p.refuse(); err != nil {
		return nil, rewrite.Rules{}, err
	}
	if err := p.checkFiles(d); err != nil {
		return nil, rewrite.Rules{}, err
	}
	if err := d.checkWritable(); err != nil {
		return nil, rewrite.Rules{}, err
	}
	rules, err := p.rules(d)
	return p, rules, err
}

// readPlan reads a sealed plan. A missing one is ErrUsage, an edited or
// damaged one ErrChanged.
func (d runDir) readPlan() (*plan, error) {
	path := d.path(planFileName)
	if exists, err := d.has(planFileName); err != nil {
		return nil, err
	} else if !exists {
		return nil, usage(fmt.Sprintf("there is no plan in %s", d.folder), "run rekey plan with this --run-dir first")
	}
	content, err := d.read(planFileName)
	if errors.Is(err, fs.ErrNotExist) { // a link that leads nowhere
		return nil, d.unreadable(planFileName, err)
	}
	if err != nil {
		return nil, err
	}
	edited := func(cause error) error {
		return &Failure{Kind: ErrChanged, What: path + " is not as rekey plan wrote it", Cause: cause,
			Do: "a plan is never edited: make a new one with other flags and a new --run-dir"}
	}
	if err := refuseDuplicateFields(content); err != nil {
		return nil, edited(err)
	}
	p := new(plan)
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(p); err != nil {
		return nil, edited(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, edited(errors.New("something follows the plan"))
	}
	if p.Schema != planSchema {
		return nil, &Failure{Kind: ErrChanged, What: fmt.Sprintf("%s has schema version %d, this rekey reads %d", path, p.Schema, planSchema),
			Do: "use the version of rekey that made the plan, or plan again with a new --run-dir"}
	}
	stored := p.ID
	if err := p.seal(); err != nil {
		return nil, err
	}
	if stored != p.ID {
		return nil, edited(fmt.Errorf("its content does not match its plan_id %s", stored))
	}
	if err := p.check(); err != nil {
		return nil, edited(err)
	}
	return p, nil
}

// check looks at what later phases index by, so that even a well-sealed plan
// of another tool cannot make them fail in the middle.
func (p *plan) check() error {
	if len(p.Captures) == 0 {
		return errors.New("it has no capture")
	}
	if _, err := p.sealedRules(); err != nil {
		return err
	}
	if p.PruneBefore != nil && len(p.PruneBefore) != int(p.Source.Partitions) {
		return fmt.Errorf("it does not prune %d partitions", p.Source.Partitions)
	}
	if _, err := newClaims(rewrite.Rules{}, p.Claims); err != nil {
		return err
	}
	if _, err := codecByName(p.Compression); err != nil {
		return err
	}
	for i, c := range p.Captures {
		if len(c.Starts) != int(p.Source.Partitions) || len(c.Ends) != int(p.Source.Partitions) {
			return fmt.Errorf("capture %d does not list %d partitions", i, p.Source.Partitions)
		}
		if len(c.RecordsBy) != len(c.Ends) {
			return fmt.Errorf("capture %d does not count the records of %d partitions", i, p.Source.Partitions)
		}
		if c.AlignTo != nil && len(c.AlignTo) != int(p.Target.Partitions) {
			return fmt.Errorf("capture %d does not align %d partitions", i, p.Target.Partitions)
		}
		for _, f := range c.Aside {
			if f.Source < 0 || f.Source >= p.Source.Partitions || f.Target != f.Source || f.Round != 0 || p.Quarantine == nil || p.Quarantine.Partitions != p.Source.Partitions {
				return fmt.Errorf("capture %d quarantines from partition %d to %d", i, f.Source, f.Target)
			}
		}
		for _, f := range c.Flows {
			if f.Source < 0 || f.Source >= p.Source.Partitions || f.Target < 0 || f.Target >= p.Target.Partitions {
				return fmt.Errorf("capture %d has a flow from partition %d to %d", i, f.Source, f.Target)
			}
			if f.Round < 0 || int(f.Round) > len(p.Replays) {
				return fmt.Errorf("capture %d has a flow of replay %d of %d", i, f.Round, len(p.Replays))
			}
		}
	}
	return nil
}

// checkFiles refuses when a sealed file is missing or not as plan wrote it.
func (p *plan) checkFiles(d runDir) error {
	for _, file := range p.Files {
		sum, err := d.digest(file.Name)
		if errors.Is(err, ErrStorage) || errors.Is(err, ErrUsage) {
			return err
		}
		if err == nil && sum != file.SHA256 {
			var kept bool // see extend.go
			if kept, err = d.hasKept(file); err == nil && !kept {
				err = errors.New("its content changed")
			}
		}
		if err != nil {
			return &Failure{Kind: ErrChanged, What: fmt.Sprintf("%s is not as rekey plan wrote it", d.path(file.Name)), Cause: err,
				Do: "restore it from a copy of the run directory, or plan again with a new --run-dir"}
		}
	}
	return nil
}

// refuseDuplicateFields finds a field that appears twice in one object: the
// decoder would silently take the last.
func refuseDuplicateFields(content []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	type level struct {
		fields map[string]bool // nil in an array
		isName bool            // the next string is a name
	}
	var levels []level
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		top := len(levels) - 1
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			levels = levels[:top]
			top--
		} else if ok {
			next := level{isName: delim == '{'}
			if delim == '{' {
				next.fields = map[string]bool{}
			}
			levels = append(levels, next)
			continue
		} else if top >= 0 && levels[top].isName {
			name, _ := token.(string)
			if levels[top].fields[name] {
				return fmt.Errorf("the field %q appears twice", name)
			}
			levels[top].fields[name] = true
			levels[top].isName = false
			continue
		}
		if top >= 0 && levels[top].fields != nil {
			levels[top].isName = true // a value is complete; a name follows
		}
	}
}
