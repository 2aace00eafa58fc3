package rewrite

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"rekey/keycodec"
	"rekey/statevalue"
)

// Action is what happens to a source record.
type Action uint8

// The actions. Write, Tombstone and Copy put a record on the target; the others
// do not.
const (
	Write      Action = iota // under the new key, value unchanged
	Tombstone                // under the new key with a null value: as on the source, or because the key is pruned
	Copy                     // under the old key, byte for byte: it cannot be parsed and policy or repair say copy
	Omit                     // superseded, pruned or beaten in a collision
	Drop                     // a repair says that nobody needs it
	Quarantine               // kept aside in full, not copied
	Refuse                   // the plan says no
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
	case Drop:
		return "drop"
	case Quarantine:
		return "quarantine"
	case Refuse:
		return "refuse"
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// Reason says why a record is not simply rewritten.
type Reason uint8

// The reasons, a closed list.
const (
	Plain             Reason = iota // rewritten: the key parses and has a value
	NullValue                       // the record is a tombstone on the source
	Superseded                      // a later record of the key replaces it (history latest)
	Pruned                          // a given rule forgets its business key up to its sequence number
	PrunedBefore                    // the key's last record lies before the marker of the oldest checkpoint to keep
	LostCollision                   // another source key has the same target key, and is later
	Repaired                        // the key cannot be parsed and a repair says what to do
	Unparseable                     // the key cannot be parsed and the policy says what to do
	AlreadyMigrated                 // it carries a provenance header: the source is the target of a migration
	IncompatibleValue               // the target's runtime cannot read the value, or would lose some of it
)

func (r Reason) String() string {
	words := [...]string{"plain", "null-value", "superseded", "pruned", "pruned-before", "lost-collision", "repaired", "unparseable", "already-migrated", "incompatible-value"}
	if int(r) < len(words) {
		return words[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Policy says what to do with records whose key cannot be parsed, or whose value
// the target's runtime cannot read.
type Policy string

// The policies of --on-unparseable and --on-incompatible-value.
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

// PrunedAs says what is left of a pruned key.
type PrunedAs string

// The values of --pruned.
const (
	PrunedTombstone PrunedAs = "tombstone" // a tombstone in the place of its last record
	PrunedOmit      PrunedAs = "omit"      // nothing
)

// Repair is a person's decision on one key that cannot be parsed.
type Repair struct {
	Action RepairAction
	Key    keycodec.Key // what a rewritten key means; only read
	Round  int32        // of the replay that it was decided in; 0 if it stood in the plan from the beginning
}

// RepairAction is what a repair does.
type RepairAction string

// The actions of a repair.
const (
	RepairRewrite RepairAction = "rewrite" // as if the key had parsed as Repair.Key
	RepairDrop    RepairAction = "drop"    // nothing of the key goes to the target
	RepairCopy    RepairAction = "copy"    // under the old key, byte for byte
)

// Rules are the choices that decisions rest on. They are the same for every
// record of a migration and are sealed in its plan. Deciders only read them.
type Rules struct {
	From, To         keycodec.Format
	Partitioner      keycodec.Partitioner
	TargetPartitions int32 // at least 1
	OnUnparseable    Policy
	History          History

	// Actions are the action UUIDs of the target by those of the source; nil
	// where they stay as they are. A key whose action is missing here counts as
	// one that cannot be parsed.
	Actions map[uuid.UUID]uuid.UUID
	// OnIncompatible is for values that release 0.4 cannot read, or not whole;
	// "" where the target is for runtimes that read what the source's did.
	OnIncompatible Policy

	// Repairs are by the source key, and take precedence over OnUnparseable.
	// The null key names no state, so all that can be decided is to drop it.
	Repairs map[string]*Repair
	NullKey *Repair
	Replays int32 // rounds of repairs that were decided after the copy: the highest Repair.Round

	// Prunes forget: the business key's entries up to and including the
	// sequence number. The business key is compared byte for byte.
	Prunes map[string]int64
	// PruneBefore holds an offset for each source partition: a key whose last
	// record lies before it is forgotten. Nil for no such rule.
	PruneBefore []int64
	Pruned      PrunedAs // "" is PrunedTombstone

	// Losers are the source keys that give way to another source key with the
	// same target key.
	Losers map[string]bool
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
	switch r.OnIncompatible {
	case "", PolicyFail, PolicyQuarantine, PolicyCopy:
	default:
		return fmt.Errorf("unknown policy %q for values that cannot be read; known: fail, quarantine, copy", r.OnIncompatible)
	}
	switch r.History {
	case HistoryAll, HistoryLatest:
	default:
		return fmt.Errorf("unknown history %q; known: all, latest", r.History)
	}
	switch r.Pruned {
	case "", PrunedTombstone, PrunedOmit:
	default:
		return fmt.Errorf("unknown form %q of pruned keys; known: tombstone, omit", r.Pruned)
	}
	return nil
}

// NeedsLast says whether Decide must be told which record of a key is its
// last: then a source partition has to be read twice.
func (r Rules) NeedsLast() bool {
	return r.History == HistoryLatest || r.Prunes != nil || r.PruneBefore != nil
}

// WholeHistory are the same rules without those that leave out records of a key
// because of others: under them, every record that has a place on the target
// goes there.
func (r Rules) WholeHistory() Rules {
	r.History, r.Prunes, r.PruneBefore = HistoryAll, nil, nil
	return r
}

// Copies says whether a key that cannot be parsed is carried over as it is.
func (r *Rules) Copies(key []byte) bool {
	if repair := r.Repair(key); repair != nil {
		return repair.Action == RepairCopy
	}
	return r.OnUnparseable == PolicyCopy && key != nil
}

// Repair is the decision on a key that cannot be parsed, or nil.
func (r *Rules) Repair(key []byte) *Repair {
	if key == nil {
		return r.NullKey
	}
	return r.Repairs[string(key)]
}

// refusesValue says whether a value must not go to the target as it is.
func (r *Rules) refusesValue(value []byte) bool {
	if r.OnIncompatible == "" || r.OnIncompatible == PolicyCopy {
		return false
	}
	return statevalue.Look(value).Problem != ""
}

// pruned says which rule forgets a record's key, or Plain. The key's last
// record has the offset last.
func (r *Rules) pruned(key *keycodec.Key, partition int32, last int64) Reason {
	if upTo, given := r.Prunes[string(key.BusinessKey)]; given && key.Sequence <= upTo {
		return Pruned
	}
	if r.PruneBefore != nil && last < r.PruneBefore[partition] {
		return PrunedBefore
	}
	return Plain
}

// Decision is what becomes of one record.
type Decision struct {
	Action    Action
	Key       []byte               // on the target; valid until the next Decide of the same Decider
	Partition int32                // on the target
	Parsed    *keycodec.Key        // what the source key says, by itself or by its repair, or nil; valid as Key is
	Problem   *keycodec.ParseError // why the source key cannot be parsed or has no place on the target, or nil
	Reason    Reason               // why the record is not simply rewritten
	Last      bool                 // the last record of a key with Parsed; only where Rules.NeedsLast
	Round     int32                // of the replay that writes it: its key was kept aside until then; 0 for the copy itself
}

// Value is what the target's record holds: the source record's value, or null
// for a tombstone.
func (d *Decision) Value(r *Record) []byte {
	if d.Action == Tombstone {
		return nil
	}
	return r.Value
}

// Aside is what becomes of the record on the topic for records that are kept
// aside, given what becomes of it on the target: those that are quarantined go
// there as they are, and so do those that only a replay takes to the target.
func (d *Decision) Aside(r *Record) Decision {
	if d.Action != Quarantine && d.Round == 0 {
		return Decision{Action: Omit, Reason: d.Reason}
	}
	return Decision{Action: Copy, Reason: d.Reason, Problem: d.Problem, Key: r.Key, Partition: r.Partition}
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

// Decide says what becomes of a record, by the first line that applies. A key
// that Translate refuses counts as one that cannot be parsed, and a key with a
// repair that says rewrite as one that parses:
//
//	record                                           decision
//	carries a provenance header                      Refuse, AlreadyMigrated
//	key cannot be parsed, repair says drop           Drop, Repaired
//	key cannot be parsed, lost a collision           Omit, LostCollision
//	key cannot be parsed, repair says copy           Copy, Repaired
//	key cannot be parsed, policy fail                Refuse, Unparseable
//	key cannot be parsed, policy quarantine          Quarantine, Unparseable
//	key cannot be parsed, policy copy, null key      Quarantine, Unparseable: a compacted topic takes no null key
//	key cannot be parsed, policy copy                Copy, Unparseable
//	key parses, lost a collision                     Omit, LostCollision
//	key parses, pruned, pruned keys are omitted      Omit, Pruned or PrunedBefore
//	key parses, pruned, not its last record          Omit, Pruned or PrunedBefore
//	key parses, pruned                               Tombstone, Pruned or PrunedBefore
//	key parses, not its last record, history latest  Omit, Superseded
//	key parses, null value                           Tombstone, NullValue
//	key parses, value incompatible, policy fail      Refuse, IncompatibleValue
//	key parses, value incompatible, quarantine       Quarantine, IncompatibleValue
//	key parses by its repair                         Write, Repaired
//	key parses                                       Write, Plain
//
// The argument last is the offset of the last record of this state key in its
// source partition; it is looked at only where Rules.NeedsLast. The error is
// for a key that parses but that the target's format cannot express.
func (d *Decider) Decide(r *Record, last int64) (Decision, error) {
	if _, found := FindProvenance(r.Headers); found {
		return Decision{Action: Refuse, Reason: AlreadyMigrated}, nil
	}
	decision := Decision{Parsed: &d.key, Last: d.rules.NeedsLast() && r.Offset == last}
	key, err := d.rules.Translate(d.buf[:0], &d.key, r.Key)
	if err != nil {
		problem, ok := errors.AsType[*keycodec.ParseError](err)
		if !ok {
			return Decision{}, fmt.Errorf("translate the key of partition %d, offset %d from %s to %s: %w", r.Partition, r.Offset, d.rules.From.Name(), d.rules.To.Name(), err)
		}
		repair := d.rules.Repair(r.Key)
		if repair == nil || repair.Action != RepairRewrite {
			return d.unparseable(r, repair, problem), nil
		}
		decision.Problem, decision.Parsed, decision.Round = problem, &repair.Key, repair.Round
		if key, err = d.rules.To.Append(d.buf[:0], &repair.Key); err != nil {
			return Decision{}, fmt.Errorf("encode the repaired key of partition %d, offset %d as %s: %w", r.Partition, r.Offset, d.rules.To.Name(), err)
		}
	}
	d.buf = key
	if decision.Action, decision.Reason = d.act(r, &decision, last); !decision.Action.OnTarget() {
		return decision, nil
	}
	decision.Key = key
	decision.Partition = d.rules.Partitioner.Partition(d.rules.To, key, decision.Parsed, r.Partition, d.rules.TargetPartitions)
	return decision, nil
}

// act decides on a record whose key parses or was repaired.
func (d *Decider) act(r *Record, decision *Decision, last int64) (Action, Reason) {
	if len(d.rules.Losers) > 0 && d.rules.Losers[string(r.Key)] {
		return Omit, LostCollision
	}
	if by := d.rules.pruned(decision.Parsed, r.Partition, last); by != Plain {
		if d.rules.Pruned == PrunedOmit || r.Offset != last {
			return Omit, by
		}
		return Tombstone, by
	}
	switch {
	case d.rules.History == HistoryLatest && r.Offset != last:
		return Omit, Superseded
	case r.Value == nil:
		return Tombstone, NullValue
	case d.rules.refusesValue(r.Value):
		if d.rules.OnIncompatible == PolicyQuarantine {
			return Quarantine, IncompatibleValue
		}
		return Refuse, IncompatibleValue
	case decision.Problem != nil:
		return Write, Repaired
	}
	return Write, Plain
}

// unparseable applies the repair, or else the policy, to a record whose key
// cannot be parsed.
func (d *Decider) unparseable(r *Record, repair *Repair, problem *keycodec.ParseError) Decision {
	decision := Decision{Action: Refuse, Reason: Unparseable, Problem: problem}
	if repair != nil {
		decision.Round = repair.Round
	}
	switch {
	case repair != nil && repair.Action == RepairDrop:
		decision.Action, decision.Reason = Drop, Repaired
	case d.rules.Losers[string(r.Key)]:
		decision.Action, decision.Reason = Omit, LostCollision
	case d.rules.Copies(r.Key):
		decision.Action = Copy
		decision.Key = r.Key
		decision.Partition = CopiedPartition(r.Partition, d.rules)
		if repair != nil {
			decision.Reason = Repaired
		}
	case d.rules.OnUnparseable != PolicyFail:
		decision.Action = Quarantine
	}
	return decision
}

// CopiedPartition places the records of a source partition whose key is copied
// as it is. The running job never writes such a key again, so any place that
// all its records share will do; the source's own keeps their order where it
// can be kept.
func CopiedPartition(source int32, rules Rules) int32 { return source % rules.TargetPartitions }
