package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/wire"
)

// copyTopic is what a good engineer would write by hand with a current client:
// consume all partitions, escape the business key, produce to the partition
// that the runtime's partitioner chooses, with large compressed batches. It has
// no plan, no resume, no proof, and stops at the end only because it counts.
func copyTopic(ctx context.Context, args []string) error {
	addrs, source, target, codec := args[0], args[1], args[2], args[3]
	ranges, err := reader.Ranges(ctx, strings.Split(addrs, ","), source)
	if err != nil {
		return err
	}
	partitions := int32(len(ranges))
	producer, err := newProducer(addrs, codec)
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := seed.CreateTopic(ctx, producer, target, partitions, -1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		return err
	}
	sending := sender{client: producer, topic: target}
	err = consume(ctx, addrs, source, ranges, func(r *kgo.Record) {
		if key, ok := escape(r.Key); ok {
			sending.send(ctx, &kgo.Record{Partition: seed.Partition(key, partitions), Key: key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp})
		}
	})
	if err != nil {
		return err
	}
	if err := sending.finish(ctx); err != nil {
		return err
	}
	return tell(told{Records: sending.records})
}

// newProducer has the settings that make the client fast.
func newProducer(addrs, codec string) (*kgo.Client, error) {
	compression, known := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[codec]
	if !known {
		return nil, fmt.Errorf("unknown codec %q", codec)
	}
	return kgo.NewClient(kgo.SeedBrokers(strings.Split(addrs, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(compression), kgo.ProducerBatchMaxBytes(1_000_000), kgo.ProducerLinger(5*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.MaxBufferedRecords(200_000), kgo.MaxBufferedBytes(256<<20))
}

// sender hands records to a client and keeps the first failure.
type sender struct {
	client  *kgo.Client
	topic   string
	records int64
	failed  atomic.Pointer[error]
}

func (s *sender) send(ctx context.Context, r *kgo.Record) {
	s.records++
	r.Topic = s.topic
	s.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
		if err != nil {
			s.failed.CompareAndSwap(nil, &err)
		}
	})
}

func (s *sender) finish(ctx context.Context) error {
	if err := s.client.Flush(ctx); err != nil {
		return err
	}
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// tell prints what was done, for the process that started this one.
func tell(t told) error { return json.NewEncoder(os.Stdout).Encode(t) }

// escape rewrites a legacy key; the last three fields hold no separator.
func escape(key []byte) ([]byte, bool) {
	end := len(key)
	for range 3 {
		if end = bytes.LastIndexByte(key[:end], '_'); end < 0 {
			return nil, false
		}
	}
	out := make([]byte, 0, len(key)+8)
	for _, c := range key[:end] {
		switch c {
		case '_':
			out = append(out, "%5F"...)
		case '%':
			out = append(out, "%25"...)
		default:
			out = append(out, c)
		}
	}
	return append(out, key[end:]...), true
}

// consumeTopic only reads: no copy can be faster.
func consumeTopic(ctx context.Context, args []string) error {
	addrs, source := args[0], args[1]
	ranges, err := reader.Ranges(ctx, strings.Split(addrs, ","), source)
	if err != nil {
		return err
	}
	var done told
	if err := consume(ctx, addrs, source, ranges, func(*kgo.Record) { done.Records++ }); err != nil {
		return err
	}
	return tell(done)
}

// consume reads a topic without holes to its present end.
func consume(ctx context.Context, addrs, source string, ranges map[int32]reader.Range, fn func(*kgo.Record)) error {
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	for partition, r := range ranges {
		if r.Start < r.End {
			from[partition], left[partition] = kgo.NewOffset().At(r.Start), r.End
		}
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addrs, ",")...), kgo.FetchMaxPartitionBytes(4<<20),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{source: from}))
	if err != nil {
		return err
	}
	defer consumer.Close()
	for len(left) > 0 {
		fetches := consumer.PollFetches(ctx)
		var failed error
		fetches.EachError(func(_ string, _ int32, err error) { failed = errors.Join(failed, err) })
		if failed != nil {
			return failed
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end, wanted := left[r.Partition]; wanted && r.Offset < end {
				fn(r)
				if r.Offset == end-1 {
					delete(left, r.Partition)
				}
			}
		})
	}
	return nil
}

// readyRecords is how many different records are produced again and again.
const readyRecords = 20_000

// ready are the records that a copy of a topic would write, made in advance, by
// target partition.
func ready(o seed.Options) []seed.Generated {
	o.Records = min(o.Records, readyRecords)
	var out []seed.Generated
	for g := range seed.Generate(o) {
		key, ok := escape(g.Key)
		if !ok {
			continue
		}
		g.Key, g.Partition = key, seed.Partition(key, o.Partitions)
		out = append(out, g)
	}
	return out
}

// produceTopic only writes, with the client and the settings of the hand-written
// copy. The clock starts when the records are made.
func produceTopic(ctx context.Context, args []string) error {
	o, addrs, target, err := producerArgs("produce", args)
	if err != nil {
		return err
	}
	records := ready(o)
	client, err := newProducer(addrs, o.Codec.String())
	if err != nil {
		return err
	}
	defer client.Close()
	began := time.Now()
	sending := sender{client: client, topic: target}
	for i := range o.Records {
		r := &records[i%len(records)]
		sending.send(ctx, &kgo.Record{Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)})
	}
	if err := sending.finish(ctx); err != nil {
		return err
	}
	return tell(told{Records: sending.records, Seconds: time.Since(began).Seconds()})
}

// produceBatches only writes, and leaves out what a client does for each record:
// batches of 800 kB are cut from ready records once, and then encoded, compressed
// and sent by several goroutines. What is left is the codec and the broker.
func produceBatches(ctx context.Context, args []string) error {
	o, addrs, target, err := producerArgs("batches", args)
	if err != nil {
		return err
	}
	const batchBytes = 800_000
	var batches []readyBatch
	last := map[int32]int{} // partition to its latest batch
	for _, r := range ready(o) {
		size := len(r.Key) + len(r.Value) + 32
		at, found := last[r.Partition]
		if !found || batches[at].size+size > batchBytes {
			at = len(batches)
			last[r.Partition] = at
			batches = append(batches, readyBatch{partition: r.Partition})
		}
		batches[at].size += size
		batches[at].records = append(batches[at].records, r.Record)
	}
	batches = fill(batches, batchBytes)
	var clients [8]*kgo.Client // a broker works on one request of a connection at a time
	for i := range clients {
		if clients[i], err = wire.Dial(strings.Split(addrs, ",")); err != nil {
			return err
		}
		defer clients[i].Close()
	}
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i, left := 0, o.Records; left > 0; i++ {
		b := batches[i%len(batches)]
		b.records = b.records[:min(left, len(b.records))]
		left -= len(b.records)
		group.Go(func() error {
			raw, err := wire.Encode(wire.Batch{Records: b.records, Codec: o.Codec})
			if err != nil {
				return err
			}
			_, err = wire.Produce(ctx, clients[i%len(clients)], target, b.partition, raw)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return tell(told{Records: int64(o.Records), Seconds: time.Since(began).Seconds()})
}

type readyBatch struct {
	partition int32
	size      int
	records   []wire.Record
}

// fill repeats the records of batches that are less than half full: a partition
// that gets few of them still gets them in large batches.
func fill(batches []readyBatch, bytes int) []readyBatch {
	for i := range batches {
		b := &batches[i]
		for ; b.size*2 <= bytes; b.size *= 2 {
			b.records = slices.Concat(b.records, b.records)
		}
	}
	return batches
}

func producerArgs(command string, args []string) (o seed.Options, addrs, target string, err error) {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	o = seed.Options{Seed: 1, Step: 10}
	topicFlags(flags, &o)
	err = flags.Parse(args)
	return o, flags.Arg(0), flags.Arg(1), err
}
