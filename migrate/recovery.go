package migrate

import (
	"bytes"
	"fmt"
	"strings"

	"rekey/keycodec"
	"rekey/report"
	"rekey/statevalue"
)

// How the releases of Flink Agents recover their action states from a topic, as
// rules without Kafka: where they begin to read, what a record does to the
// states, which keys stop them. rehearse.go plays both topics through
// these rules.
//
//	runtime     begins                               tombstone        malformed key
//	0.2, 0.3    lowest offset of all markers;        stays as an      loaded; later
//	            outside of the log: at the           entry without    lookups throw
//	            beginning, silently                  a state
//	0.4         the same                             removes the      recovery fails
//	                                                 entry
//	0.4-strict  the same, but the markers must       removes the      recovery fails
//	            name exactly the topic's partitions  entry
//	            and lie inside of the log, or
//	            recovery is refused
//
// All of them read uncommitted data. 0.4-strict reads to the end that it saw
// first; the others stop at the first poll that brings no record. That is a
// second in which nothing arrives, or a fetch that only passes transaction
// markers or batches that the cleaner emptied. So a slow broker can make them
// stop early, and a partition that has to begin at the beginning, which takes a
// further request, is the likeliest one to be missed. That is the one thing that
// no rehearsal can foretell; rehearse takes them to read to the end.
type recovery struct {
	runtime string
	// strict: the marker must fit the topic.
	strict bool
	// tombstoneRemoves: a tombstone leaves nothing behind. Without it, the
	// entry stays, without a state. A lookup does not find it, but it still
	// counts when the runtime looks for divergence: two entries of one business
	// key and sequence number.
	tombstoneRemoves bool
	// malformedAborts: one key that the runtime cannot take apart ends recovery.
	malformedAborts bool
	// wellFormed says whether the runtime can take a key apart.
	wellFormed func(key []byte) bool
	// readsValue says whether the runtime can load a value; nil for any.
	readsValue func(value []byte) bool
	// reads is the one target format that the runtime reads, "" for any that
	// splits into four fields.
	reads string
}

// runtimes are the releases whose recovery is known, in order.
var runtimes = []recovery{
	{runtime: "0.2", wellFormed: splitsIntoFour},
	{runtime: "0.3", wellFormed: splitsIntoFour},
	{runtime: "0.4", tombstoneRemoves: true, malformedAborts: true, wellFormed: hasLayout04, readsValue: loads04, reads: keycodec.NameFlinkAgents04},
	{runtime: "0.4-strict", strict: true, tombstoneRemoves: true, malformedAborts: true, wellFormed: hasLayout04, readsValue: loads04, reads: keycodec.NameFlinkAgents04},
}

// loads04 says whether recovery of release 0.4 gets past a value, with whatever
// is lost of it.
func loads04(value []byte) bool {
	problem := statevalue.Look(value).Problem
	return problem == "" || problem == statevalue.PayloadLost
}

// RuntimeNames lists the runtimes that can be rehearsed.
func RuntimeNames() []string {
	names := make([]string, len(runtimes))
	for i, r := range runtimes {
		names[i] = r.runtime
	}
	return names
}

func recoveryOf(runtime string) (recovery, error) {
	for _, r := range runtimes {
		if r.runtime == runtime {
			return r, nil
		}
	}
	return recovery{}, usage(fmt.Sprintf("unknown --runtime %q", runtime), "known: "+strings.Join(RuntimeNames(), ", "))
}

// splitsIntoFour is what releases 0.1 to 0.3 demand of a key: four parts after
// Java's split("_"), which drops empty parts at the end.
func splitsIntoFour(key []byte) bool {
	return key != nil && bytes.Count(bytes.TrimRight(key, "_"), []byte{'_'}) == 3
}

// layout04 parses any key of release 0.4: to take one apart needs neither the
// key type nor the max parallelism of the job.
var layout04 = func() keycodec.Format {
	format, err := keycodec.NewFlinkAgents04(keycodec.KeyString, keycodec.MaxMaxParallelism)
	if err != nil {
		panic(err) // both arguments are constants that it takes
	}
	return format
}()

// hasLayout04 is what release 0.4 demands of a key.
func hasLayout04(key []byte) bool {
	var parsed keycodec.Key
	return key != nil && layout04.Parse(&parsed, key) == nil
}

// logRange is what a partition holds: from its log start up to, not including,
// its end.
type logRange struct{ start, end int64 }

func logRanges(starts, ends []int64) []logRange {
	log := make([]logRange, len(starts))
	for partition := range log {
		log[partition] = logRange{starts[partition], ends[partition]}
	}
	return log
}

// holds says whether a consumer may begin at an offset: the end is fine, it
// waits there for what comes.
func (l logRange) holds(offset int64) bool { return l.start <= offset && offset <= l.end }

// begin says where recovery reads a topic from, with all else that it does at
// that point. With an effect that stops the job, it reads nothing.
func (r recovery) begin(m marker, log []logRange) ([]Span, []report.Effect) {
	var spans []Span
	var effects []report.Effect
	stopped := false
	add := func(code string, partition int32, format string, args ...any) {
		effects = append(effects, report.Effect{Code: code, Partition: &partition, Text: fmt.Sprintf(format, args...)})
		stopped = stopped || code == report.EffectRefuse
	}
	missing := report.EffectSkip
	if r.strict {
		missing = report.EffectRefuse
	}
	for partition, held := range log {
		p := int32(partition)
		offset, named := m[p]
		switch {
		case !named && r.strict:
			add(missing, p, "the marker does not name partition %d: runtime %s refuses it", p, r.runtime)
		case !named:
			add(missing, p, "the marker does not name partition %d: nothing of it is read", p)
		case held.holds(offset):
			spans = append(spans, Span{p, offset, held.end})
		case r.strict:
			add(report.EffectRefuse, p, "partition %d: the offset %d lies outside of the log, %d to %d: runtime %s refuses it", p, offset, held.start, held.end, r.runtime)
		default:
			where := "beyond the end"
			if offset < held.start {
				where = "before the log start"
			}
			add(report.EffectRestart, p, "partition %d: the offset %d lies %s of the log, %d to %d: all of the partition is read", p, offset, where, held.start, held.end)
			spans = append(spans, Span{p, held.start, held.end})
		}
	}
	for _, partition := range m.partitions() {
		if int(partition) >= len(log) {
			add(missing, partition, "the marker names partition %d, which the topic does not have", partition)
		}
	}
	if stopped {
		spans = nil
	}
	return spans, effects
}

// replayed is what two replays, of the source and then of the target, made of
// one state key: 24 bytes, however often it was written and however large its
// value is.
type replayed struct {
	value     uint64 // digest of its value on the source
	sequence  int64
	business  uint32 // number of its business key
	partition uint16 // on the source, without the high bits
	flags     replayFlags
}

type replayFlags uint8

const (
	seenOnSource    replayFlags = 1 << iota // it has a record in the source's replay
	stateOnSource                           // its last record on the source has a value
	seenOnTarget                            // it has a record in the target's replay
	stateOnTarget                           // its last record on the target has a value
	sameValue                               // and that is the value on the source
	onTwoPartitions                         // seen on several partitions of the source: in which order is for the consumer to say
	repairedKey                             // on the source under a key that a repair rewrites
)

func (r *replayed) set(flag replayFlags, on bool) {
	r.flags &^= flag
	if on {
		r.flags |= flag
	}
}

func (r *replayed) is(flag replayFlags) bool { return r.flags&flag != 0 }

// businessKey is what is remembered of a business key, for the question whether
// an extra state can be mistaken for one of the job's own.
type businessKey struct {
	number uint32
	lowest int64 // sequence number of its states in the source's replay, or noSequence
	latest int64 // sequence number written last on the target, or noSequence
}

// noSequence is no sequence number, since those are not negative.
const noSequence int64 = -1

// observation is one record of a replay, reduced to what the comparison needs.
type observation struct {
	state     fingerprint // of the state key
	business  fingerprint // of the business key
	sequence  int64
	value     uint64 // digest
	tombstone bool
	partition int32
	repaired  bool
}

// replays holds the outcome of both replays, for one part of the key space. The
// source is observed first, then settled, then the target is observed. A state
// key costs 40 bytes and its index, at most 47 in all, and so does a business
// key.
type replays struct {
	recovery
	states   keyTable[replayed]
	business keyTable[businessKey]
}

func (t *replays) businessOf(key fingerprint) *businessKey {
	business, isNew := t.business.at(key)
	if isNew {
		*business = businessKey{number: uint32(t.business.size - 1), lowest: noSequence, latest: noSequence}
	}
	return business
}

// at is the entry of an observation's state key.
func (t *replays) at(o *observation) (state *replayed, business *businessKey) {
	business = t.businessOf(o.business)
	state, isNew := t.states.at(o.state)
	if isNew {
		state.business, state.sequence, state.partition = business.number, o.sequence, uint16(o.partition)
	}
	return state, business
}

// onSource takes in a record of the source.
func (t *replays) onSource(o *observation) {
	state, _ := t.at(o)
	if o.repaired {
		state.set(repairedKey, true)
		return
	}
	if state.is(seenOnSource) && state.partition != uint16(o.partition) {
		state.set(onTwoPartitions, true)
	}
	state.partition = uint16(o.partition)
	state.value = o.value
	state.set(seenOnSource, true)
	state.set(stateOnSource, !o.tombstone)
}

// settle ends the source's replay.
func (t *replays) settle() {
	for i := range t.states.size {
		state := &t.states.entry(i).value
		if state.is(stateOnSource) {
			business := &t.business.entry(int(state.business)).value
			if business.lowest == noSequence || state.sequence < business.lowest {
				business.lowest = state.sequence
			}
		}
	}
}

// onTarget takes in a record of the target.
func (t *replays) onTarget(o *observation) {
	state, business := t.at(o)
	state.set(seenOnTarget, true)
	state.set(stateOnTarget, !o.tombstone)
	state.set(sameValue, !o.tombstone && o.value == state.value)
	if !o.tombstone {
		business.latest = o.sequence
	}
}

// difference is what the two replays say of one state key.
type difference uint8

const (
	nothing         difference = iota // no state on either side, and no trace that could matter
	same                              // the same value on both
	lost                              // a state on the source, none on the target
	different                         // the value differs
	undeleted                         // deleted on the source, a state on the target
	older                             // only on the target, below what the job asks for
	restarted                         // only on the target, above the last of its business key
	confusable                        // only on the target, and the job may ask for it
	confusableTrace                   // the same of a tombstone that the runtime keeps as an entry
	undefined                         // on several partitions of the source
	repaired                          // only on the target, under a key that could not be parsed before its repair
)

// compare says what the two replays made of a state key.
//
// An extra state is confusable when the source's replay has a state of the same
// business key with the same or a lower sequence number: the job that restores
// this marker works on those, and may come upon the extra one. Extra states of
// a business key of which the job recovers nothing are older: the job was
// through with it. Among those, one with a higher sequence number than the one
// written last is left over from before the job was started afresh.
func (t *replays) compare(state *replayed) difference {
	business := &t.business.entry(int(state.business)).value
	onSource, onTarget := state.is(stateOnSource), state.is(stateOnTarget)
	recovers := business.lowest != noSequence // something of this business key
	switch {
	case onSource && onTarget && state.is(sameValue):
		return same
	case state.is(repairedKey) && !state.is(seenOnSource):
		if onTarget {
			return repaired
		}
		return nothing
	case state.is(onTwoPartitions) && state.is(seenOnTarget) && (onSource || onTarget):
		return undefined
	case onSource && onTarget:
		return different
	case onSource:
		return lost
	case onTarget && state.is(seenOnSource):
		return undeleted
	case onTarget && recovers && state.sequence >= business.lowest:
		return confusable
	case onTarget && !recovers && state.sequence > business.latest:
		return restarted
	case onTarget:
		return older
	case state.is(seenOnTarget) && !state.is(seenOnSource) && !t.tombstoneRemoves && recovers && state.sequence >= business.lowest:
		return confusableTrace
	}
	return nothing
}

// count adds the outcome to a rehearsal.
func (t *replays) count(to *report.Rehearsal) {
	for i := range t.states.size {
		state := &t.states.entry(i).value
		if state.is(stateOnSource) {
			to.Source.States++
		}
		if state.is(stateOnTarget) {
			to.Target.States++
		}
		switch t.compare(state) {
		case same:
			to.Same++
		case lost:
			to.Lost++
		case different, undeleted:
			to.Different++
		case older:
			to.Older++
		case restarted:
			to.Older++
			to.Restarted++
		case confusable, confusableTrace:
			to.Confusable++
		case undefined:
			to.Undefined++
		case repaired:
			to.Repaired++
		}
	}
}
