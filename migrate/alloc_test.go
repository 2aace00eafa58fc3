package migrate

import (
	"math"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/rewrite"
)

// What a record takes after the client library has decoded its batch, and before
// it encodes the next one: no allocation at all. The library itself makes one for
// each record that it decodes, and two more for each header.
//
// Each path is run over batches of a thousand and of two thousand records. The
// same number of allocations for both means that none is a record's; the number
// is that of a batch.

// allocBatch is a batch of the source or of its target, as fetched. Broker and
// connection are gone when it returns: what they do beside would be counted.
func allocBatch(t *testing.T, records int, migrated bool) (batch piece) {
	t.Helper()
	if !t.Run("fetch", func(t *testing.T) { batch = allocFetch(t, records, migrated) }) {
		t.FailNow()
	}
	return batch
}

func allocFetch(t *testing.T, records int, migrated bool) piece {
	t.Helper()
	broker := testcluster.Start(t)
	topic := broker.Topic(t, "allocations")
	if err := seed.CreateTopic(testcluster.Context(t), broker.Client(t), topic, 1, -1, nil); err != nil {
		t.Fatal(err)
	}
	batch := seed.Batch{Codec: 3}
	for g := range seed.Generate(seed.Options{Seed: 1, Partitions: 1, Records: records, Keys: 20, RecordBytes: 200}) {
		r := g.Record
		r.Headers = []seed.Header{{Key: "trace", Value: []byte("7")}, {Key: "none"}}
		if migrated {
			decision, err := rewrite.NewDecider(allocRules(t)).Decide(&rewrite.Record{Key: r.Key, Value: r.Value}, 0)
			if err != nil {
				t.Fatal(err)
			}
			r.Key = append([]byte(nil), decision.Key...)
			r.Headers = append(r.Headers, seed.Header{Key: rewrite.ProvenanceHeader, Value: rewrite.AppendProvenance(nil, 0, r.Offset, 0)})
		}
		batch.Records = append(batch.Records, r)
	}
	if _, err := seed.ProduceBatch(testcluster.Context(t), broker.Client(t), topic, 0, batch); err != nil {
		t.Fatal(err)
	}
	r := &topicReader{cluster: readerConnect(t, broker.Addrs(), readerPatient), topic: topic}
	link := r.cluster.newLink()
	defer link.close()
	block, err := r.fetch(link, 0, 0, largestFetchBytes)
	if err != nil {
		t.Fatal(err)
	}
	at := cursor{end: int64(records)}
	pieces, _, err := at.take(block)
	if err != nil || len(pieces) != 1 {
		t.Fatalf("%d batches, %v", len(pieces), err)
	}
	return pieces[0]
}

func allocRules(t *testing.T) rewrite.Rules {
	t.Helper()
	rules, err := DefaultPlanOptions().rules(4)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// allocations checks what a path allocates for a batch, whatever its records.
func allocations(t *testing.T, want float64, migrated bool, path func(records []rewrite.Record)) {
	t.Helper()
	for _, n := range []int{1000, 2000} {
		batch := allocBatch(t, n, migrated)
		var records []rewrite.Record
		// What other goroutines allocate at the same time is counted, too. It can
		// only add, so the least of several counts is the path's own.
		got := math.Inf(1)
		for tries := 0; tries < 10 && got != want; tries++ {
			got = min(got, testing.AllocsPerRun(20, func() {
				var err error
				if records, err = batch.records(records[:0], 0); err != nil {
					t.Fatal(err)
				}
				path(records)
			}))
		}
		if len(records) != n {
			t.Fatalf("%d records instead of %d", len(records), n)
		}
		if got != want {
			t.Errorf("%d records: %v allocations, want %v", n, got, want)
		}
	}
}

// Plan: read, decide, count.
func TestPlanAllocatesNothingForARecord(t *testing.T) {
	rules := allocRules(t)
	counted, err := newTally(rules, newFingerprinter(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	decider := rewrite.NewDecider(rules)
	allocations(t, 0, false, func(records []rewrite.Record) {
		for i := range records {
			decision, err := decider.Decide(&records[i], records[i].Offset)
			if err != nil {
				t.Fatal(err)
			}
			counted.add(&records[i], decision)
		}
	})
	if counted.counts.Rewritten == 0 || counted.counts.Rewritten != counted.counts.Records {
		t.Errorf("%+v", counted.counts)
	}
}

// Apply: read, decide, add to a batch that the client library then encodes. Two
// allocations are the batch's: the library's batch, and where its first record
// came from, in words for errors.
func TestApplyAllocatesNothingForARecord(t *testing.T) {
	decider := rewrite.NewDecider(allocRules(t))
	batch, out := &outgoing{size: largestBatch}, copyOut{}
	var built *sarama.RecordBatch
	allocations(t, 2, false, func(records []rewrite.Record) {
		batch.reset()
		for i := range records {
			decision, err := decider.Decide(&records[i], records[i].Offset)
			if err != nil {
				t.Fatal(err)
			}
			record := out.record(&records[i], &decision)
			if !batch.fits(record) {
				t.Fatalf("a batch holds %d records only", i)
			}
			batch.add(record)
		}
		if built = batch.build(producer{id: 1}, 0, sarama.CompressionLZ4); len(built.Records) != len(records) {
			t.Fatalf("%d records of %d", len(built.Records), len(records))
		}
	})
}

// Verify reads both sides: what the source demands, and what the target has.
func TestVerifyAllocatesNothingForARecord(t *testing.T) {
	rules := allocRules(t)
	decider := rewrite.NewDecider(rules)
	p := &plan{}
	p.Source.Partitions, p.Target.Partitions = 1, 4
	sums, hash := p.newLedger(), newHasher()
	allocations(t, 0, false, func(records []rewrite.Record) {
		for i := range records {
			r := &records[i]
			decision, err := decider.Decide(r, r.Offset)
			if err != nil {
				t.Fatal(err)
			}
			sums.pair(0, r.Partition, decision.Partition).add(r.Offset, hash.of(decision.Key, decision.Value(r), r.Headers, r.Timestamp))
		}
	})

	c := &comparison{plan: p, hasher: hash, demand: demand{rules: rules}, captures: []capture{{At: time.Now(), Starts: []int64{0}, Ends: []int64{1 << 40}}}}
	key, err := rewrite.PaddingKey(rules.To)
	if err != nil {
		t.Fatal(err)
	}
	scan := targetPartitionScan{comparison: c, scan: c.newTargetScan(make([]int64, 4)), paddingKey: key}
	allocations(t, 0, true, func(records []rewrite.Record) {
		*scan.scan.pair(0, 0, 0) = pairSum{last: -1}
		for i := range records {
			scan.record(&records[i])
		}
	})
	if c.total > 0 {
		t.Errorf("%d differences: %+v", c.total, c.kept)
	}
	if scan.records == 0 {
		t.Error("no record was looked at")
	}
}
