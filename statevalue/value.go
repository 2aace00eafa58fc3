package statevalue

import "bytes"

// Layout names the release that wrote a value, see the package documentation.
type Layout string

// The layouts.
const (
	Layout01  Layout = "0.1"
	Layout02  Layout = "0.2"
	Layout03  Layout = "0.3"
	Layout030 Layout = "0.3.0"
	Layout031 Layout = "0.3.1"
	Layout04  Layout = "0.4"
	Unknown   Layout = "unknown"
)

// Problem says in one word why release 0.4 cannot read a value, or not whole.
type Problem string

// The problems, a closed list: the first that applies is the one that is told.
const (
	NotAState     Problem = "not-a-state"        // no JSON object with the fields of a state
	OldFields     Problem = "layout-0.1"         // fields that 0.4 does not know
	PythonEvent   Problem = "python-event"       // an event of a class that 0.4 does not have
	PlainMemory   Problem = "plain-memory-value" // a memory value that is not in an envelope
	OtherEnvelope Problem = "memory-envelope"    // an envelope of another version
	PayloadLost   Problem = "payload-lost"       // 0.4 loads it, without what its events carry
)

var problems = [...]struct {
	problem Problem
	meaning string
}{
	{NotAState, "The value is no JSON of an action's state, so release 0.4 fails on it."},
	{OldFields, "Release 0.1 wrote the value: it has fields that release 0.4 does not know, and fails on."},
	{PythonEvent, "The value has an event of release 0.2's Python class, which release 0.4 does not have: it fails on it."},
	{PlainMemory, "The value has a memory value as plain JSON, as release 0.3.0 wrote it; release 0.4 wants an envelope and fails."},
	{OtherEnvelope, "The value has a memory value in an envelope that release 0.4 does not know: it fails on it."},
	{PayloadLost, "Release 0.2 wrote the value: release 0.4 loads it, but input and output of its events are lost."},
}

// Problems lists every problem in the order in which they are looked for.
func Problems() []Problem {
	list := make([]Problem, len(problems))
	for i := range problems {
		list[i] = problems[i].problem
	}
	return list
}

// Meaning explains a problem in one sentence.
func (p Problem) Meaning() string {
	for i := range problems {
		if problems[i].problem == p {
			return problems[i].meaning
		}
	}
	return ""
}

// Value is what can be told of a value without reading it whole.
type Value struct {
	Layout    Layout
	Problem   Problem // "" if release 0.4 reads it
	EventType []byte  // of the event that the action was for: its type, or else its class; part of the value, or nil
	Completed bool    // the action is done: its effects are in the state
	Envelope  bool    // a memory value is in an envelope, which only the same major version of Flink reads
}

// findings are the marks of layouts that were met in a value.
type findings struct {
	Value
	state, oldFields, objectCreation bool // fields of the state
	pythonEvent, untypedEvent        bool // events
	plain, otherEnvelope             bool // memory values
}

// Look tells what it can of a value in one pass, without allocating. It is
// tolerant: whatever it does not know is passed over.
func Look(value []byte) Value {
	s := scanner{text: value}
	var f findings
	whole := s.object(func(field []byte) bool {
		switch string(field) {
		case "taskEvent":
			f.state = true
			return f.event(&s, true)
		case "outputEvents", "subagentResultEvents":
			f.state = true
			return s.array(func() bool { return f.event(&s, false) })
		case "memoryUpdates":
			f.oldFields = true
		case "sensoryMemoryUpdates", "shortTermMemoryUpdates":
			f.state = true
			return s.array(func() bool { return f.memoryUpdate(&s) })
		case "objectCreation":
			f.objectCreation = true
		case "completed":
			f.Completed = s.next() == 't'
		}
		return s.skip()
	})
	f.judge(whole)
	return f.Value
}

// judge decides on layout and problem.
func (f *findings) judge(whole bool) {
	switch {
	case !whole || !f.state && !f.oldFields:
		f.Layout, f.Problem = Unknown, NotAState
	case f.oldFields:
		f.Layout, f.Problem = Layout01, OldFields
	case f.pythonEvent:
		f.Layout, f.Problem = Layout02, PythonEvent
	case f.untypedEvent && f.plain:
		f.Layout, f.Problem = Layout02, PlainMemory
	case f.untypedEvent:
		f.Layout, f.Problem = Layout02, PayloadLost
	case f.plain:
		f.Layout, f.Problem = Layout030, PlainMemory
	case f.otherEnvelope:
		f.Layout, f.Problem = Unknown, OtherEnvelope
	case f.objectCreation:
		f.Layout = Layout04
	case f.Envelope:
		f.Layout = Layout031
	default:
		f.Layout = Layout03
	}
}

const pythonEventClass = "org.apache.flink.agents.runtime.python.event.PythonEvent"

// event looks at an event of a state.
func (f *findings) event(s *scanner, isTask bool) bool {
	if s.next() != '{' {
		return s.skip() // null, in states that have none
	}
	var class, kind, pythonKind []byte
	ok := s.object(func(field []byte) bool {
		switch string(field) {
		case "@class":
			return s.stringInto(&class)
		case "type":
			return s.stringInto(&kind)
		case "eventType":
			return s.stringInto(&pythonKind)
		}
		return s.skip()
	})
	switch {
	case string(class) == pythonEventClass:
		f.pythonEvent = true
	case len(kind) == 0:
		f.untypedEvent = true
	}
	if isTask {
		f.EventType = firstNotEmpty(kind, pythonKind, class)
	}
	return ok
}

func firstNotEmpty(texts ...[]byte) []byte {
	for _, text := range texts {
		if len(text) > 0 {
			return text
		}
	}
	return nil
}

// memoryUpdate looks at an update of a state's memory.
func (f *findings) memoryUpdate(s *scanner) bool {
	if s.next() != '{' {
		return s.skip()
	}
	return s.object(func(field []byte) bool {
		switch string(field) {
		case "objectCreation":
			f.objectCreation = true
		case "value":
			return f.memoryValue(s)
		}
		return s.skip()
	})
}

// memoryValue tells plain JSON from an envelope.
func (f *findings) memoryValue(s *scanner) bool {
	switch s.next() {
	case 'n': // null
		return s.skip()
	case '{':
	default:
		f.plain = true
		return s.skip()
	}
	var serde, version, payload []byte
	ok := s.object(func(field []byte) bool {
		switch string(field) {
		case "serde":
			return s.stringInto(&serde)
		case "version":
			from := s.at
			ok := s.skip()
			version = bytes.TrimSpace(s.text[from:s.at])
			return ok
		case "payload":
			return s.stringInto(&payload)
		}
		return s.skip()
	})
	switch {
	case serde == nil || version == nil || payload == nil:
		f.plain = true
	case string(serde) == "kryo" && string(version) == "1":
		f.Envelope = true
	default:
		f.otherEnvelope = true
	}
	return ok
}
