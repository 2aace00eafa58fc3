package report

import "time"

// SchemaVersion is the version of every JSON document that this package
// writes. It changes when a field changes its meaning or goes away; new fields
// may appear without a change.
const SchemaVersion = 1

// Report is what a plan found out and decided: the content of report.json,
// report.txt and report.html. All counts are of records unless they say
// otherwise.
type Report struct {
	Schema    int       `json:"schema_version"`
	Tool      string    `json:"tool"` // "rekey 0.1.0"
	PlanID    string    `json:"plan_id"`
	CreatedAt time.Time `json:"created_at"`
	Verdict   Verdict   `json:"verdict"`
	RunDir    string    `json:"run_dir"`

	Source  Topic   `json:"source"`
	Target  Topic   `json:"target"`
	Options Options `json:"options"`

	Counts      Counts        `json:"counts"`
	Unparseable []ReasonCount `json:"unparseable"`   // by reason, most records first
	Examples    []BadKey      `json:"bad_keys"`      // the first few; unparseable.jsonl holds all
	BadKeys     int64         `json:"bad_key_count"` // distinct keys that cannot be parsed
	Traits      []TraitCount  `json:"traits"`        // keys that parse but deserve a look
	Spread      []Load        `json:"spread"`        // records by partition, before and after
	Times       TimeRange     `json:"timestamps"`
	Timeline    []TimeBucket  `json:"timeline"`     // records by time, see Timeline; empty when nobody counted
	Codecs      []NamedCount  `json:"codecs"`       // compression of the source's batches
	Actions     []NamedCount  `json:"actions"`      // records by action UUID, most first, the first few
	ActionCount int64         `json:"action_count"` // distinct action UUIDs
	Padding     Padding       `json:"padding"`

	Repairs    *Repairs    `json:"repairs,omitempty"`    // absent without a repairs file
	Pruned     *Pruned     `json:"pruned,omitempty"`     // absent without a prune rule
	Collisions []Collision `json:"collisions,omitempty"` // source keys that become one target key, the first thousand
	Collided   int64       `json:"collision_count,omitempty"`

	Release04 *Release04 `json:"flink_agents_04,omitempty"` // absent for another target format

	Breaks   []Break   `json:"breaks"`   // what the releases do on the source, and what changes
	Findings []Finding `json:"findings"` // in order of severity: refusals, warnings, notes
	Next     []string  `json:"next"`     // commands to run next, in order
	Rollback string    `json:"rollback"`
}

// Verdict says in one word and one sentence whether apply may run.
type Verdict struct {
	Code    VerdictCode `json:"code"`
	Summary string      `json:"summary"`
}

// VerdictCode is a closed list.
type VerdictCode string

// The verdicts of a plan.
const (
	Ready   VerdictCode = "ready"   // apply may run
	Review  VerdictCode = "review"  // apply may run; warnings deserve a look first
	Refused VerdictCode = "refused" // apply will refuse; a finding says why
)

// Topic is one side of a migration.
type Topic struct {
	Name       string      `json:"name"`
	ID         string      `json:"id,omitempty"` // topic id; empty when the topic does not exist yet or the broker has none
	ClusterID  string      `json:"cluster_id"`
	Partitions []Partition `json:"partitions,omitempty"`
	Count      int32       `json:"partition_count"`
	Configs    []Config    `json:"configs,omitempty"`
}

// Partition is the captured range of one partition.
type Partition struct {
	ID    int32 `json:"partition"`
	Start int64 `json:"log_start"` // first offset still there
	End   int64 `json:"log_end"`   // one past the last, the high watermark
}

// Config is one topic setting of the target and where it comes from: "source",
// "given", "rekey" (needed for the copy), or "not carried over".
type Config struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
	Note   string `json:"note,omitempty"`
}

// Options are the choices that decide what the target will hold.
type Options struct {
	From          string `json:"from"`
	To            string `json:"to"`
	Partitioner   string `json:"partitioner"`
	OnUnparseable string `json:"on_unparseable"`
	History       string `json:"history"`
	Align         string `json:"align"`
	Compression   string `json:"compression"`
	Isolation     string `json:"isolation_level"`
	OnCollision   string `json:"on_collision,omitempty"`
	Pruned        string `json:"pruned,omitempty"` // with a prune rule: tombstone or omit
}

// Counts sums up the scan. Records = Rewritten + Tombstones + Omitted +
// Quarantined + Copied + Dropped + Undecided.
type Counts struct {
	Records     int64 `json:"records"`
	Bytes       int64 `json:"bytes"` // keys, values and headers, uncompressed
	Rewritten   int64 `json:"rewritten"`
	Tombstones  int64 `json:"tombstones"` // key parses, null value: tombstone under the new key
	Omitted     int64 `json:"omitted"`    // superseded (history latest) or pruned
	Quarantined int64 `json:"quarantined"`
	Copied      int64 `json:"copied"`    // cannot be parsed, copied byte for byte
	Dropped     int64 `json:"dropped"`   // cannot be parsed, a repair says drop
	Undecided   int64 `json:"undecided"` // key cannot be parsed or value not be read, and the policy is to fail

	Unparseable           int64 `json:"unparseable"`            // records whose key cannot be parsed
	UnparseableTombstones int64 `json:"unparseable_tombstones"` // of those, with a null value
	ChangedKeys           int64 `json:"changed_keys"`           // records whose key differs on the target
	Moved                 int64 `json:"moved"`                  // records that land in another partition number
	Misplaced             int64 `json:"misplaced"`              // records that the releases' partitioner would not have put where they are
	Aborted               int64 `json:"aborted"`                // records of aborted transactions
	Headers               int64 `json:"with_headers"`
	EmptyValues           int64 `json:"empty_values"` // empty, which is not a tombstone
	LargestRecord         int64 `json:"largest_record_bytes"`
}

// ReasonCount counts the unparseable keys of one reason.
type ReasonCount struct {
	Reason  string `json:"reason"`
	Meaning string `json:"meaning"`
	Keys    int64  `json:"keys"`
	Records int64  `json:"records"`
}

// BadKey is one state key that cannot be parsed: a line of unparseable.jsonl.
type BadKey struct {
	KeyBase64  *string     `json:"key_base64"` // null for the null key
	Key        string      `json:"key"`        // printable form, see Printable
	Reason     string      `json:"reason"`
	Field      string      `json:"field,omitempty"`
	Byte       int         `json:"byte"`
	Detail     string      `json:"detail"`
	Records    int64       `json:"records"`
	Tombstones int64       `json:"tombstones"`
	First      Position    `json:"first"`
	Last       Position    `json:"last"`
	Decision   string      `json:"decision"` // refuse, quarantine, copy, drop, rewrite
	Suggestion *Suggestion `json:"suggestion,omitempty"`
}

// Position is a place in a topic.
type Position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// Suggestion is a repair that the cause of a bad key makes likely. It is never
// applied by itself.
type Suggestion struct {
	Cause       string `json:"cause"`
	Text        string `json:"text"`
	BusinessKey string `json:"business_key"`
	Sequence    int64  `json:"sequence"`
	EventUUID   string `json:"event_uuid"`
	ActionUUID  string `json:"action_uuid"`
}

// TraitCount counts the records of keys that parse but deserve a look.
type TraitCount struct {
	Trait   string   `json:"trait"`
	Meaning string   `json:"meaning"`
	Records int64    `json:"records"`
	Example string   `json:"example"` // printable form
	At      Position `json:"at"`
}

// Repairs are the decisions of a repairs file, as the scan met them.
type Repairs struct {
	Totals []RepairTotal `json:"totals"` // by decision
	Keys   []RepairedKey `json:"keys"`   // the first thousand
	Unused int64         `json:"unused"` // decisions on keys that are not in the topic
}

// RepairTotal counts the keys of one decision.
type RepairTotal struct {
	Decision string `json:"decision"` // rewrite, drop, copy
	Keys     int64  `json:"keys"`
	Records  int64  `json:"records"`
}

// RepairedKey is a key that cannot be parsed, before and after its repair, both
// in printable form. After is empty for a key that is dropped.
type RepairedKey struct {
	Decision string   `json:"decision"`
	Before   string   `json:"before"`
	After    string   `json:"after,omitempty"`
	Records  int64    `json:"records"`
	First    Position `json:"first"`
	Last     Position `json:"last"`
}

// Pruned is what the given rules forget. An entry is a state key.
type Pruned struct {
	Rules     []PruneRule `json:"rules"`
	Lines     int64       `json:"lines"`           // of the prune list
	Unmatched int64       `json:"unmatched"`       // lines that match no key of the topic
	Examples  []Prune     `json:"unmatched_lines"` // the first hundred of them
	// Unsafe says which older checkpoints must not be restored any more: those
	// whose marker is at or below one of these offsets of the source. They would
	// have read the state of a pruned key.
	Unsafe     []Position  `json:"unsafe_up_to"`
	UnsafeKeys int64       `json:"unsafe_keys"` // entries that had a state up to now
	Keys       []PrunedKey `json:"keys"`        // the first hundred entries
}

// The names of the prune rules.
const (
	RulePrune       = "prune"
	RulePruneBefore = "prune-before"
)

// PruneRule counts what one rule forgets.
type PruneRule struct {
	Rule    string `json:"rule"`          // prune or prune-before
	Entries int64  `json:"entries"`       // state keys
	Records int64  `json:"records_saved"` // not written
	Bytes   int64  `json:"bytes_saved"`   // not written: keys, values and headers
}

// PrunedKey is an entry that a rule forgets.
type PrunedKey struct {
	Rule        string   `json:"rule"`
	BusinessKey string   `json:"business_key"` // printable form
	Sequence    int64    `json:"sequence"`
	Last        Position `json:"last"`  // its last record
	State       bool     `json:"state"` // that record had a value: older checkpoints would have read it
}

// Collision is a target key that several source keys become.
type Collision struct {
	Target string         `json:"target"` // printable form
	Keys   []CollidingKey `json:"keys"`
}

// CollidingKey is one of the source keys of a collision.
type CollidingKey struct {
	KeyBase64 *string  `json:"key_base64"`
	Key       string   `json:"key"` // printable form
	Records   int64    `json:"records"`
	First     Position `json:"first"`
	Last      Position `json:"last"`
	LastTime  int64    `json:"last_timestamp_ms"`
	Completed bool     `json:"completed,omitempty"` // its last state is that of a completed action; known for flink-agents-0.4 alone
	Wins      bool     `json:"wins"`                // it is kept; none is before --on-collision says how
}

// Load is the number of records on one partition number before and after.
type Load struct {
	Partition int32 `json:"partition"`
	Before    int64 `json:"before"`
	After     int64 `json:"after"`
}

// TimeRange is the range of the record timestamps, in milliseconds since 1970
// as the log holds them. Unset counts records with the timestamp -1.
type TimeRange struct {
	Oldest   int64    `json:"oldest_ms"`
	OldestAt Position `json:"oldest_at"`
	Newest   int64    `json:"newest_ms"`
	NewestAt Position `json:"newest_at"`
	Unset    int64    `json:"unset"`
}

// TimeBucket counts the records with timestamps from From up to, but not
// including, To.
type TimeBucket struct {
	From    int64 `json:"from_ms"`
	To      int64 `json:"to_ms"`
	Records int64 `json:"records"`
}

// NamedCount is a count with a name.
type NamedCount struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// Padding is what alignment costs: tombstones of the reserved key, written
// before the first record of each target partition.
type Padding struct {
	Records    int64 `json:"records"`
	Partitions int32 `json:"partitions"`
	EstimateMS int64 `json:"estimate_ms"` // a guess from a rate measured once; 0 without padding
}

// Break is one thing that the released runtimes do wrong on the source, with
// how many records it concerns and whether the migration cures it.
type Break struct {
	Code     string `json:"code"`     // stable, for scripts
	Releases string `json:"releases"` // "0.1-0.3"
	Title    string `json:"title"`
	Records  int64  `json:"records"`
	Cured    bool   `json:"cured"`
	Text     string `json:"text"`
}

// BreakSeparator is the code of the break that gave the product its reason:
// business keys that hold the separator.
const BreakSeparator = "separator"

// Severity orders findings.
type Severity string

// The severities of a finding.
const (
	Refusal Severity = "refusal" // apply will refuse
	Warning Severity = "warning" // needs a decision by a person
	Note    Severity = "note"
)

// Finding is one thing that a person should know, and what to do about it.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     string   `json:"code"` // stable, for scripts: "unparseable-keys", "live-source", …
	Title    string   `json:"title"`
	Text     string   `json:"text,omitempty"`
	Do       string   `json:"do,omitempty"` // what to do next
}

// Apply is the evidence of one run of apply: apply.json, or apply-<i>-of-<n>.json
// of shard i of n, whose counts are those of its own source partitions.
type Apply struct {
	Schema     int       `json:"schema_version"`
	Tool       string    `json:"tool"`
	PlanID     string    `json:"plan_id"`
	Shard      string    `json:"shard,omitempty"` // "i/n" of a shard
	Source     Topic     `json:"source"`
	Target     Topic     `json:"target"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	Resumed    bool      `json:"resumed"`         // the target already held records of this plan
	Nothing    bool      `json:"nothing_to_do"`   // the target already held all of them
	Present    int64     `json:"already_present"` // records found on the target
	Written    int64     `json:"written"`         // records written by this run
	Replayed   int64     `json:"replayed"`        // of those, quarantined at first and repaired since
	Padded     int64     `json:"padding_written"` // padding written by this run
	Bytes      int64     `json:"bytes_written"`   // keys, values and headers, uncompressed
	Skipped    int64     `json:"not_copied"`      // quarantined, dropped, omitted
	LiveSource bool      `json:"live_source"`     // the source grew after its end was captured
	Quarantine *Aside    `json:"quarantine,omitempty"`
	Findings   []Finding `json:"findings"`
	Next       []string  `json:"next"`
	Rollback   string    `json:"rollback"`
}

// Verify is the evidence of one run of verify: verify.json.
type Verify struct {
	Schema      int          `json:"schema_version"`
	Tool        string       `json:"tool"`
	PlanID      string       `json:"plan_id"`
	Source      Topic        `json:"source"`
	Target      Topic        `json:"target"`
	StartedAt   time.Time    `json:"started_at"`
	FinishedAt  time.Time    `json:"finished_at"`
	Equal       bool         `json:"equal"`
	Method      string       `json:"method"`   // "exact" or "compacted": every record, or every record that compaction left
	Demanded    int64        `json:"demanded"` // records that the source demands now
	Found       int64        `json:"found"`    // migrated records on the target
	Padding     int64        `json:"padding"`
	Superseded  int64        `json:"superseded"`  // on one side only, rightly: compaction removed the other
	Differences []Difference `json:"differences"` // the first hundred
	Total       int64        `json:"difference_count"`
	Quarantine  *Aside       `json:"quarantine,omitempty"`
	Next        []string     `json:"next"`
	Rollback    string       `json:"rollback"`
}

// Aside is what a phase found and did on the quarantine topic.
type Aside struct {
	Topic    string `json:"topic"`
	ID       string `json:"topic_id"`
	Demanded int64  `json:"demanded"` // records that the source has for it; counted by verify alone
	Present  int64  `json:"present"`  // records found there: by apply before it wrote any
	Written  int64  `json:"written"`  // records written by this run
}

// Difference is one way in which the target is not what the plan demands.
type Difference struct {
	Topic  string    `json:"topic,omitempty"` // the quarantine topic; absent for the target
	Kind   string    `json:"kind"`            // missing, extra, duplicate, order, partition, key, value, timestamp, headers, provenance, config
	Key    string    `json:"key"`             // printable form
	Source *Position `json:"source,omitempty"`
	Target *Position `json:"target,omitempty"`
	Text   string    `json:"text"`
}
