package migrate

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// keyShapes counts what business keys look like. The type of a job's keys cannot
// be told from a topic: String 1, Long 1 and Integer 1 print alike. But what the
// keys look like rules types out, and makes others unlikely.
type keyShapes struct {
	records    int64
	numbers    int64 // decimal, as Long and Integer print
	integers   int64 // of those, that fit 32 bits
	decimals   int64 // as Double prints
	booleans   int64
	pickled    int64 // rows of one byte array
	rows       int64 // other rows
	rowNumbers int64 // of those, whose field is a number
	example    []byte
}

func (s *keyShapes) add(businessKey []byte) {
	prints := func(t keycodec.KeyType) bool {
		var buffer [64]byte
		_, _, err := t.Serialize(buffer[:0], businessKey)
		return err == nil
	}
	if s.records == 0 {
		s.example = bytes.Clone(businessKey)
	}
	s.records++
	first := byte(0)
	if len(businessKey) > 0 {
		first = businessKey[0]
	}
	// The first byte decides which types are worth a try: this is asked of every record.
	switch {
	case first == '+':
		if !bytes.HasPrefix(businessKey, []byte("+I[")) {
			return
		}
		if prints(keycodec.KeyRowPickled) {
			s.pickled++
		} else if bytes.HasSuffix(businessKey, []byte("]")) {
			s.rows++
			if prints(keycodec.KeyRowLong) {
				s.rowNumbers++
			}
		}
	case first == '-' || first >= '0' && first <= '9':
		switch {
		case prints(keycodec.KeyInt):
			s.numbers++
			s.integers++
		case prints(keycodec.KeyLong):
			s.numbers++
		case prints(keycodec.KeyDouble):
			s.decimals++
		}
	case string(businessKey) == "true" || string(businessKey) == "false":
		s.booleans++
	}
}

func (s *keyShapes) merge(o *keyShapes) {
	if s.records == 0 {
		s.example = o.example
	}
	s.records += o.records
	s.numbers += o.numbers
	s.integers += o.integers
	s.decimals += o.decimals
	s.booleans += o.booleans
	s.pickled += o.pickled
	s.rows += o.rows
	s.rowNumbers += o.rowNumbers
}

// String says in words what the keys look like.
func (s *keyShapes) String() string {
	if s.records == 0 {
		return "no key was found to look at"
	}
	var parts []string
	say := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, share(n, s.records)+" "+what)
		}
	}
	say(s.integers, "are decimal numbers of up to 32 bits")
	say(s.numbers-s.integers, "are decimal numbers of up to 64 bits")
	say(s.decimals, "are numbers as a Double prints them")
	say(s.booleans, "are true or false")
	say(s.pickled, "are rows of one byte array (pickled, as Python jobs have them)")
	say(s.rows, "are other rows (+I[...])")
	say(s.records-s.numbers-s.decimals-s.booleans-s.pickled-s.rows, "are other text")
	return fmt.Sprintf("of %d records' business keys, %s; the first is %s", s.records, strings.Join(parts, ", "), report.Shorten(report.Printable(s.example), 60))
}

// doubts says whether a key type that prints any text was given for keys that
// all look like those of another one.
func (s *keyShapes) doubts(t keycodec.KeyType) bool {
	switch {
	case s.records == 0:
		return false
	case t == keycodec.KeyString:
		return s.fits() != string(keycodec.KeyString)
	case t == keycodec.KeyRowString:
		return s.rowNumbers == s.records || s.pickled == s.records
	}
	return false
}

// fits says which key types print all of the keys.
func (s *keyShapes) fits() string {
	switch s.records {
	case s.pickled:
		return "row-pickled"
	case s.integers:
		return "string, long or int"
	case s.numbers:
		return "string or long"
	case s.decimals:
		return "string or double"
	case s.booleans:
		return "string or boolean"
	case s.rows:
		return "string, row-string, row-long or row-int"
	}
	return "string"
}

func (o PlanOptions) lacksKeyType() bool {
	return o.To == keycodec.NameFlinkAgents04 && o.KeyType == "" && !o.Extend
}

// keysToLookAt bounds the records of each partition that are looked at to say
// what the keys of a topic look like.
const keysToLookAt = 10_000

// askForKeyType refuses a plan without a key type, and says what the keys of the
// topic look like, so that whoever knows the job can name it.
func (o PlanOptions) askForKeyType(ctx context.Context, env Environment) error {
	shapes, err := o.keyShapes(ctx, env)
	if err != nil {
		return err
	}
	return usage("--key-type is missing, and the topic does not hold it: "+shapes.String(),
		fmt.Sprintf("look into the job for the type of its keyBy, and name it: %s. The keys of the topic could be of type %s. A wrong type makes the job find none of its states", keyTypeNames(), shapes.fits()))
}

func (o PlanOptions) keyShapes(ctx context.Context, env Environment) (*keyShapes, error) {
	any := o
	any.KeyType = string(keycodec.KeyString) // what is wrong beside it is said first
	if err := any.Validate(); err != nil {
		return nil, err
	}
	from, err := keycodec.Lookup(o.From)
	if err != nil {
		return nil, usage(err.Error(), "")
	}
	sides, err := connectSides(ctx, o.Connections, env)
	if err != nil {
		return nil, err
	}
	defer sides.close()
	state, err := sourceTopic(ctx, sides.source, o.Source)
	if err != nil {
		return nil, err
	}
	starts, ends, err := bounds(ctx, sides.source, o.Source, len(state.partitions))
	if err != nil {
		return nil, err
	}
	var spans []Span
	for partition, start := range starts {
		if start < ends[partition] {
			spans = append(spans, Span{int32(partition), start, min(ends[partition], start+keysToLookAt)})
		}
	}
	reader := &topicReader{cluster: sides.source, topic: o.Source}
	shapes := make([]keyShapes, len(starts))
	err = eachSpan(ctx, env.budget().readers, spans, func(ctx context.Context, span Span) error {
		var key keycodec.Key
		_, err := reader.Read(ctx, span, func(records []rewrite.Record) error {
			for i := range records {
				if from.Parse(&key, records[i].Key) == nil {
					shapes[span.Partition].add(key.BusinessKey)
				}
			}
			return nil
		})
		return err
	})
	var all keyShapes
	for partition := range shapes {
		all.merge(&shapes[partition])
	}
	return &all, err
}
