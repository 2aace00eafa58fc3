package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
)

// copyTopic is what a good engineer would write by hand with a current client:
// consume all partitions, escape the business key, produce to the partition
// that the runtime's partitioner chooses, with large compressed batches. It has
// no plan, no resume, no proof, and stops at the end only because it counts.
func copyTopic(ctx context.Context, addrs, source, target, codec string) error {
	ranges, err := reader.Ranges(ctx, strings.Split(addrs, ","), source)
	if err != nil {
		return err
	}
	partitions := int32(len(ranges))
	compression, known := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[codec]
	if !known {
		return fmt.Errorf("unknown codec %q", codec)
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addrs, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(compression), kgo.ProducerBatchMaxBytes(1_000_000), kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(200_000), kgo.MaxBufferedBytes(256<<20))
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := seed.CreateTopic(ctx, producer, target, partitions, -1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		return err
	}
	var failed atomic.Pointer[error]
	err = consume(ctx, addrs, source, ranges, func(r *kgo.Record) {
		key, ok := escape(r.Key)
		if !ok {
			return
		}
		out := &kgo.Record{Topic: target, Partition: seed.Partition(key, partitions), Key: key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp}
		producer.Produce(ctx, out, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	})
	if err != nil {
		return err
	}
	if err := producer.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

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
func consumeTopic(ctx context.Context, addrs, source string) error {
	ranges, err := reader.Ranges(ctx, strings.Split(addrs, ","), source)
	if err != nil {
		return err
	}
	return consume(ctx, addrs, source, ranges, func(*kgo.Record) {})
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

// kcatPipe is what people use today: it changes no key and drops headers and
// timestamps. It takes part if kcat is installed.
func kcatPipe(addrs, source, target string) ([]string, bool) {
	if _, err := exec.LookPath("kcat"); err != nil {
		return nil, false
	}
	return []string{"sh", "-c", fmt.Sprintf(
		`kcat -b %[1]s -C -t %[2]s -o beginning -e -q -K '\t' -X fetch.message.max.bytes=4194304 | kcat -b %[1]s -P -t %[3]s -K '\t' -Z -X compression.codec=lz4 -X linger.ms=5 -X batch.size=1000000`,
		addrs, source, target)}, true
}

// createTopic makes the target of a rival that cannot do so itself.
func createTopic(ctx context.Context, addrs, topic string, partitions int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addrs, ",")...))
	if err != nil {
		return err
	}
	defer client.Close()
	return seed.CreateTopic(ctx, client, topic, int32(partitions), -1, nil)
}

func seedCodec(name string) (seed.Codec, error) {
	codec, known := map[string]seed.Codec{"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[name]
	if !known {
		return 0, fmt.Errorf("unknown -codec %q", name)
	}
	return codec, nil
}
