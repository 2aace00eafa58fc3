package rewrite

import (
	"errors"
	"fmt"

	"rekey/keycodec"
)

// Action is what happens to a source record.
type Action uint8

// The actions. Write and Tombstone put a record on the target; the others do
// not.
const (
	Write      Action = iota // under the new key, value unchanged
	Tombstone                // under the new key, null value as on the source
	Copy                     // under the old key, byte for byte: it cannot be parsed and the policy says copy
	Omit                     // a later record of the key replaces it (history latest)
	Quarantine               // kept aside in full, not copied
	Refuse                   // the plan says no; Reason or AlreadyMigrated says why
)

// OnTarget says whether the record is written to the target topic.
func (a Action) OnTarget() bool { return a <= Copy }

func (a Action) String() string {
	switch a {
	case Write:
		return "rewrite"
	case Tombstone:
		return "tombstone"
	case Copy:
		return "copy"
	case Omit:
		return "omit"
	case Quarantine:
		return "quarantine"
	case Refuse:
		return "refuse"
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// Policy says what to do with records whose key cannot be parsed.
type Policy string

// The policies of --on-unparseable.
const (
	PolicyFail       Policy = "fail"
	PolicyQuarantine Policy = "quarantine"
	PolicyCopy       Policy = "copy"
)

// History says which records of a key are carried over.
type History string

// The values of --history.
const (
	HistoryAll    History = "all"    // every record, in order
	HistoryLatest History = "latest" // only the last one of each key
)

// Rules are the choices that decisions rest on. They are the same for every
// record of a migration and are sealed in its plan.
type Rules struct {
	From, To         keycodec.Format
	Partitioner      keycodec.Partitioner
	TargetPartitions int32 // at least 1
	OnUnparseable    Policy
	History          History
}

// Validate reports the first choice that is missing or not from its list.
func (r Rules) Validate() error {
	switch {
	case r.From == nil:
		return errors.New("no source format")
	case r.To == nil:
		return errors.New("no target format")
	case r.Partitioner == nil:
		return errors.New("no partitioner")
	case r.TargetPartitions < 1:
		return fmt.Errorf("%d target partitions; at least 1 is needed", r.TargetPartitions)
	}
	switch r.OnUnparseable {
	case PolicyFail, PolicyQuarantine, PolicyCopy:
	default:
		return fmt.Errorf("unknown policy %q for keys that cannot be parsed; known: fail, quarantine, copy", r.OnUnparseable)
	}
	switch r.History {
	case HistoryAll, HistoryLatest:
	default:
		return fmt.Errorf("unknown history %q; known: all, latest", r.History)
	}
	return nil
}

// NeedsLast says whether Decide must be told which record of a key is its
// last: then a source partition has to be read twice.
func (r Rules) NeedsLast() bool { return r.History == HistoryLatest }

// Decision is what becomes of one record.
type Decision struct {
	Action    Action
	Key       []byte               // on the target; valid until the next Decide of the same Decider
	Partition int32                // on the target
	Parsed    *keycodec.Key        // the parsed source key, nil if it cannot be parsed; valid as Key is
	Problem   *keycodec.ParseError // why the source key cannot be parsed, or nil
	// AlreadyMigrated is set on a record that carries a provenance header:
	// the source is itself the target of a migration.
	AlreadyMigrated bool
}

// Decider applies Rules to records. It holds scratch space, so each goroutine
// needs its own.
type Decider struct {
	rules Rules
	key   keycodec.Key
	buf   []byte
}

// NewDecider returns a Decider for rules, which must be valid.
func NewDecider(rules Rules) *Decider { return &Decider{rules: rules} }

// Decide says what becomes of a record, by the first line that applies:
//
//	record                                           decision
//	carries a provenance header                      Refuse, AlreadyMigrated
//	key cannot be parsed, policy fail                Refuse, Problem
//	key cannot be parsed, policy quarantine          Quarantine, Problem
//	key cannot be parsed, policy copy, null key      Quarantine, Problem: a compacted topic takes no null key
//	key cannot be parsed, policy copy                Copy, Problem
//	key parses, not its last record, history latest  Omit
//	key parses, null value                           Tombstone
//	key parses                                       Write
//
// The argument last says whether this is the last record of its state key in
// its source partition; it is looked at only where Rules.NeedsLast. The error
// is for a key that parses but that the target's format cannot express.
func (d *Decider) Decide(r *Record, last bool) (Decision, error) {
	if _, found := FindProvenance(r.Headers); found {
		return Decision{Action: Refuse, AlreadyMigrated: true}, nil
	}
	if err := d.rules.From.Parse(&d.key, r.Key); err != nil {
		return d.unparseable(r, err)
	}
	decision := Decision{Action: Write, Parsed: &d.key}
	switch {
	case d.rules.History == HistoryLatest && !last:
		decision.Action = Omit
		return decision, nil
	case r.Value == nil:
		decision.Action = Tombstone
	}
	key, err := d.rules.To.Append(d.buf[:0], &d.key)
	if err != nil {
		return Decision{}, fmt.Errorf("encode the key of partition %d, offset %d as %s: %w", r.Partition, r.Offset, d.rules.To.Name(), err)
	}
	d.buf = key
	decision.Key = key
	decision.Partition = d.rules.Partitioner.Partition(d.rules.To, key, &d.key, r.Partition, d.rules.TargetPartitions)
	return decision, nil
}

// unparseable applies the policy to a record whose key cannot be parsed.
func (d *Decider) unparseable(r *Record, err error) (Decision, error) {
	problem, ok := errors.AsType[*keycodec.ParseError](err)
	if !ok {
		return Decision{}, fmt.Errorf("parse the key of partition %d, offset %d: %w", r.Partition, r.Offset, err)
	}
	decision := Decision{Action: Refuse, Problem: problem}
	switch d.rules.OnUnparseable {
	case PolicyQuarantine:
		decision.Action = Quarantine
	case PolicyCopy:
		if r.Key == nil {
			decision.Action = Quarantine
			break
		}
		decision.Action = Copy
		decision.Key = r.Key
		decision.Partition = CopiedPartition(r.Partition, d.rules)
	}
	return decision, nil
}

// CopiedPartition places the records of a source partition whose key is copied
// as it is. The running job never writes such a key again, so any place that
// all its records share will do; the source's own keeps their order where it
// can be kept.
func CopiedPartition(source int32, rules Rules) int32 { return source % rules.TargetPartitions }
