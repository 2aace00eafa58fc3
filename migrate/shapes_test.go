package migrate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rekey/fixtures/proxy"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/torture"
	"rekey/fixtures/wire"
)

// Logs as no usual job leaves them: timestamps from one end of 64 bits to the other,
// the smallest and the largest records, thousands of headers, every codec, batches
// that the broker stamped. Each goes through plan, apply and verify, and the model
// compares every byte; or plan refuses it by name.

const shapeIDs = "a2622b55-28e2-3a3c-9bde-7164cf05dbea_30e6b546-354f-3cf6-a60e-7956be205a13"

// shapeKey is a state key that changes on its way to the target.
func shapeKey(i int) []byte { return fmt.Appendf(nil, "user_%d_%d_%s", i, i, shapeIDs) }

// shape is a log of one partition: batches as wire encodes them.
type shape struct {
	name    string
	batches []wire.Batch
	stamped bool // by the broker: every record has its batch's newest timestamp
	configs map[string]string
	refused string // in these words; "" if it must get through
	either  bool   // refused or not: the estimate that decides is on the safe side
	exit    int    // when it is refused; 0: 6
	memory  int64  // of --memory
}

func (s shape) String() string { return s.name }

// shapeBench is a broker whose source batches can be stamped on their way to the
// reader: the embedded broker stores no such batch that can be read again.
type shapeBench struct {
	*testcluster.Cluster
	proxy *proxy.Proxy
}

// migrate carries a shape over and compares.
func (c shapeBench) migrate(t *testing.T, s shape) faultOutcome {
	t.Helper()
	source := c.CreateTopic(t, "source", 1, s.configs)
	client := c.Client(t)
	for _, batch := range s.batches {
		if _, err := seed.ProduceBatch(testcluster.Context(t), client, source, 0, batch); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	if s.stamped {
		id := c.Fake().Cluster().TopicInfo(source).TopicID
		c.proxy.Break(func(r proxy.Request) proxy.Break {
			if r.Key != kmsg.Fetch {
				return proxy.Break{}
			}
			return proxy.Break{How: proxy.Edit, Edit: func(answer kmsg.Response) { stampTopic(answer.(*kmsg.FetchResponse), source, id) }}
		})
		defer c.proxy.Break(nil)
	}
	records := c.Read(t, source)
	if s.stamped && records[1].Timestamp != records[2].Timestamp {
		return wrong("no batch is stamped")
	}
	m := migrationOf(t, c.Cluster, source, nil)
	m.env.Logf, m.env.Memory = func(string, ...any) {}, s.memory
	limitLibrary(newBudget(s.memory))
	defer limitLibrary(newBudget(0))
	_, err := Plan(testcluster.Context(t), m.options, m.env)
	if err == nil {
		// What only the target's own limits speak against is refused here.
		_, err = Apply(testcluster.Context(t), m.run, m.env)
	}
	if err != nil {
		switch {
		case s.refused == "":
			return wrong("%v", err)
		case ExitCode(err) != cmp.Or(s.exit, 6) || !strings.Contains(err.Error(), s.refused):
			return wrong("exit code %d, want %d and %q: %v", ExitCode(err), cmp.Or(s.exit, 6), s.refused, err)
		case c.Fake().Cluster().TopicInfo(m.target) != nil && len(c.Read(t, m.target)) > 0:
			return wrong("refused, with records on the target")
		}
		return faultOutcome{met: true}
	}
	if _, err := Verify(testcluster.Context(t), m.run, m.env); err != nil {
		return wrong("verify: %v", err)
	}
	demand := torture.Demand{Partitions: 1, Align: true, Captures: [][]int64{{records[len(records)-1].Offset + 1}}}
	if problems := demand.Problems(records, c.Read(t, m.target)); len(problems) > 0 {
		return faultOutcome{met: true, falseSuccess: true, problem: fmt.Sprintf("%.1000s", strings.Join(problems, "; "))}
	}
	if s.refused != "" && !s.either {
		return wrong("it is not refused")
	}
	return faultOutcome{met: true, cured: true}
}

// stampTopic marks the batches of a topic in a fetch answer as stamped by the
// broker.
func stampTopic(answer *kmsg.FetchResponse, topic string, id [16]byte) {
	for _, t := range answer.Topics {
		if t.Topic != topic && t.TopicID != id {
			continue
		}
		for _, p := range t.Partitions {
			for raw := p.RecordBatches; len(raw) > 61; {
				size := 12 + int(binary.BigEndian.Uint32(raw[8:]))
				if size > len(raw) {
					break // cut off
				}
				raw[22] |= 8 // the second byte of the attributes
				binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:size], crc32.MakeTable(crc32.Castagnoli)))
				raw = raw[size:]
			}
		}
	}
}

// shapeStamps are timestamps over the whole range of 64 bits.
func shapeStamps() []int64 {
	stamps := []int64{0, 1, 999, 1000, 1_700_000_000_000, 253_402_300_799_999 /* the year 9999 */, newestWritable - 1, newestWritable, newestWritable + 1,
		1_700_000_000_000_000 /* microseconds */, 1_700_000_000_000_000_000 /* nanoseconds */, math.MaxInt64 - 1, math.MaxInt64, -1}
	for shift := 7; shift < 63; shift += 5 {
		stamps = append(stamps, 1<<shift-1, 1<<shift, 1<<shift+1)
	}
	return stamps
}

// negativeStamps can only be written by hand: Kafka's own clients refuse them.
func negativeStamps() []int64 {
	stamps := []int64{-2, -999, -1000, -1_700_000_000_000, -newestWritable, -newestWritable - 1, math.MinInt64 + 1, math.MinInt64}
	for shift := 7; shift < 63; shift += 5 {
		stamps = append(stamps, -1<<shift, -1<<shift-1)
	}
	return stamps
}

func shapeRecords(stamps ...int64) (records []wire.Record) {
	for i, stamp := range stamps {
		records = append(records, wire.Record{Timestamp: stamp, Key: shapeKey(i), Value: fmt.Appendf(nil, "value %d", i)})
	}
	return records
}

// timestampShapes are each timestamp in a batch of its own, before and behind an
// ordinary one, and in one batch with it.
func timestampShapes(long bool) (shapes []shape) {
	const usual = 1_700_000_000_123
	for _, at := range append(shapeStamps(), negativeStamps()...) {
		refused := ""
		if at > newestWritable || at < -1 {
			refused = "timestamp" // that cannot be written, or cannot be read exactly beside the others
		}
		own := []wire.Batch{{Records: shapeRecords(usual)}, {Records: shapeRecords(at)}, {Records: shapeRecords(usual)}}
		if at >= -1 { // alone, a negative one is read as none: see "What was not tested" in docs/reliability.md
			shapes = append(shapes, shape{name: fmt.Sprintf("timestamp %d alone", at), batches: own, refused: refused})
		}
		besides := [][]int64{{usual, at, usual}, {at, usual}, {usual, at}}
		if !long {
			besides = besides[:1]
		}
		for _, beside := range besides {
			s := shape{name: fmt.Sprintf("timestamps %d", beside), batches: []wire.Batch{{Records: shapeRecords(beside...)}}, refused: refused}
			shapes = append(shapes, s)
		}
	}
	return shapes
}

// sizeShapes are records from nothing to the largest.
func sizeShapes(long bool) (shapes []shape) {
	record := func(i, size int) wire.Record {
		return wire.Record{Timestamp: 1_700_000_000_000 + int64(i), Key: shapeKey(i), Value: slices.Repeat([]byte{'a', byte(i), 0, 255}, size/4+1)[:size]}
	}
	var small []wire.Record
	for i := range 3000 {
		small = append(small, record(i, i%70))
	}
	small = append(small, wire.Record{Timestamp: 1, Key: shapeKey(0)}, wire.Record{Timestamp: 1, Key: shapeKey(0), Value: []byte{}})
	shapes = append(shapes, shape{name: "records of 0 to 69 bytes, a tombstone and an empty value", batches: []wire.Batch{{Records: small}}})
	// On the source, the largest batch has 1048588 bytes. On the target the record has
	// two bytes more in its key and a header, and does not fit any more.
	for size := 1_048_300; size <= 1_048_403; size += 20 {
		s := shape{name: fmt.Sprintf("a record of %d bytes", size), batches: []wire.Batch{{Records: []wire.Record{record(1, size)}}}}
		if size > 1_048_300 {
			s.refused, s.either = "the largest record", size < 1_048_400
		}
		shapes = append(shapes, s)
	}
	sizes := []int{8 << 20}
	if long {
		sizes = append(sizes, 16<<20, 31<<20, 48<<20, 64<<20-1000)
	}
	for _, size := range sizes {
		s := shape{name: fmt.Sprintf("a record of %d bytes", size), configs: map[string]string{"max.message.bytes": "67108864"},
			memory:  4 << 30, // the broker is in this process, too
			batches: []wire.Batch{{Records: []wire.Record{record(1, size)}}, {Records: []wire.Record{record(2, 10)}}}}
		shapes = append(shapes, s)
		s.name, s.memory = s.name+" with the usual memory", 0
		if size > int(newBudget(0).largestBatch) {
			s.refused, s.exit = "a memory limit of", 1
		}
		shapes = append(shapes, s)
	}
	return shapes
}

// headerShapes have thousands of headers, among them null, empty, repeated ones
// and such that look like provenance but do not stand at the end.
func headerShapes() []shape {
	var many []wire.Header
	for i := range 5000 {
		h := wire.Header{Key: fmt.Sprintf("h%d", i%1000), Value: fmt.Appendf(nil, "%d", i)}
		switch i % 7 {
		case 0:
			h.Value = nil
		case 1:
			h.Value = []byte{}
		case 2:
			h.Key = ""
		}
		many = append(many, h)
	}
	records := shapeRecords(5, 6, 7)
	records[0].Headers, records[1].Headers = many, many[:1]
	return []shape{{name: "a record with 5000 headers", batches: []wire.Batch{{Records: records}}}}
}

// codecShapes are batches of every codec, of every size, and mixed.
func codecShapes() (shapes []shape) {
	var mixed shape
	mixed.name = "batches of every codec in turn"
	for codec := wire.None; codec <= wire.Zstd; codec++ {
		s := shape{name: "batches with " + codec.String()}
		for i := range 20 {
			records := shapeRecords(slices.Repeat([]int64{1_700_000_000_000 + int64(i)}, 1+i*i)...)
			for n := range records {
				records[n].Headers = []wire.Header{{Key: "n", Value: fmt.Append(nil, n)}}
				records[n].Value = slices.Repeat(records[n].Value, 1+n%9)
			}
			b := wire.Batch{Records: records, Codec: codec}
			s.batches, mixed.batches = append(s.batches, b), append(mixed.batches, b)
		}
		shapes = append(shapes, s)
		// The broker's stamp is the batch's newest timestamp, whatever the records say.
		stamped := shape{name: "batches with " + codec.String() + ", stamped by the broker", stamped: true}
		for _, stamps := range [][]int64{{5}, {-1, 1_700_000_000_000}, {1_700_000_000_000, 3, 1_700_000_000_001}, {newestWritable, 0}} {
			stamped.batches = append(stamped.batches, wire.Batch{Records: shapeRecords(stamps...), Codec: codec})
		}
		shapes = append(shapes, stamped)
	}
	return append(shapes, mixed)
}

func TestTortureShapes(t *testing.T) {
	t.Parallel()
	testcluster.RequireFake(t, "it stores what is written to it as it is")
	result := newFaultResult(t, "log shapes")
	through := proxy.New()
	t.Cleanup(through.Close)
	c := shapeBench{testcluster.StartWith(t, testcluster.Options{Fake: []kfake.Opt{kfake.ListenFn(through.Listen)}}), through}
	long := os.Getenv("REKEY_TORTURE") != ""
	for kind, shapes := range map[string][]shape{
		"timestamps": timestampShapes(long), "sizes": sizeShapes(long), "headers": headerShapes(), "codecs": codecShapes(),
	} {
		for _, s := range shapes {
			result.add(t, kind, s, c.migrate(t, s))
		}
	}
}
