package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rekey/fixtures/testcluster"
	"rekey/fixtures/wire"
)

// measuredMain is rekey as a process that says at its end how much memory it
// took at most. What a parent is told (Maxrss) includes what the parent itself
// took before the child was there, so the child has to say it.
func measuredMain() {
	code := run(os.Args, os.Stdin, os.Stdout, os.Stderr)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Fprintf(os.Stderr, "peak: %s\n", regexp.MustCompile(`VmHWM:.*`).Find(status))
	os.Exit(code)
}

// measured is what a run of rekey in a process of its own came to.
type measured struct {
	code    int
	out     string // both outputs
	peakMiB int
}

func measure(t *testing.T, args ...string) measured {
	t.Helper()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("needs /proc")
	}
	path, err := exec.LookPath("rekey-measured")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(testcluster.Context(t), path, args...)
	command.Args[0] = "rekey-measured" // the test binary knows by its name what to be
	out, err := command.CombinedOutput()
	m := measured{code: command.ProcessState.ExitCode(), out: string(out)}
	peak := regexp.MustCompile(`peak: VmHWM:\s*([0-9]+) kB`).FindStringSubmatch(m.out)
	if peak == nil {
		t.Fatalf("%v: it did not get to its end\n%s", err, out)
	}
	kilobytes, err := strconv.Atoi(peak[1])
	if err != nil {
		t.Fatal(err)
	}
	m.peakMiB = kilobytes >> 10
	t.Logf("%s: exit code %d, %d MiB at most", strings.Join(args, " "), m.code, m.peakMiB)
	return m
}

// wants checks the exit code, the peak and what is said.
func (m measured) wants(t *testing.T, code, peakMiB int, said ...string) {
	t.Helper()
	if m.code != code {
		t.Errorf("exit code %d, want %d\n%s", m.code, code, m.out)
	}
	if m.peakMiB > peakMiB {
		t.Errorf("took %d MiB, want at most %d", m.peakMiB, peakMiB)
	}
	for _, text := range said {
		if !strings.Contains(m.out, text) {
			t.Errorf("does not say %q:\n%s", text, m.out)
		}
	}
}

// memoryTopic is a topic with three records in its only partition.
func memoryTopic(t *testing.T, c *testcluster.Cluster) string {
	t.Helper()
	topic := c.CreateTopic(t, "memory", 1, map[string]string{"cleanup.policy": "compact", "max.message.bytes": strconv.Itoa(80 << 20)})
	for i := range 3 {
		memoryAppend(t, c, topic, wire.Batch{Records: []wire.Record{memoryRecord(i, nil)}})
	}
	return topic
}

func memoryRecord(i int, value []byte) wire.Record {
	return wire.Record{Timestamp: 1_700_000_000_000, Value: value,
		Key: fmt.Appendf(nil, "user_%d_0_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448", i)}
}

func memoryAppend(t *testing.T, c *testcluster.Cluster, topic string, batch wire.Batch) {
	t.Helper()
	raw, err := wire.Encode(batch)
	if err != nil {
		t.Fatal(err)
	}
	memoryProduce(t, c, topic, raw)
}

func memoryProduce(t *testing.T, c *testcluster.Cluster, topic string, raw []byte) {
	t.Helper()
	if _, err := wire.Produce(context.Background(), c.Client(t), topic, 0, raw); err != nil {
		t.Fatal(err)
	}
}

// A record of 64 MiB is copied where memory allows it, and refused with the size
// that takes it where it does not.
func TestMemory_HugeRecord(t *testing.T) {
	c := testcluster.StartWith(t, testcluster.Options{Properties: map[string]string{"socket.request.max.bytes": "200000000"}})
	topic := memoryTopic(t, c)
	value := make([]byte, 64<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(value)
	memoryAppend(t, c, topic, wire.Batch{Records: []wire.Record{memoryRecord(3, value)}})
	memoryAppend(t, c, topic, wire.Batch{Records: []wire.Record{memoryRecord(4, nil)}})
	flags := func(name string) []string {
		return []string{"--bootstrap-server", c.Bootstrap(), "--source", topic, "--target", topic + name, "--run-dir", filepath.Join(t.TempDir(), "run")}
	}
	m := measure(t, append([]string{"migrate", "--memory", "1GiB"}, flags("-copy")...)...)
	m.wants(t, 0, 1100)
	found := false
	for _, r := range c.Read(t, topic+"-copy") {
		found = found || bytes.Equal(r.Value, value)
	}
	if !found {
		t.Error("the record is not on the target")
	}
	m = measure(t, append([]string{"plan"}, flags("-none")...)...)
	m.wants(t, 1, 350, "partition 0 at offset 3", "a memory limit of 256MiB takes batches of up to 32MiB", "--memory 512MiB")
}

// A batch of a few megabytes that expands to gigabytes ends the phase with its
// place, and with memory near what was allowed.
func TestMemory_Bomb(t *testing.T) {
	zeros := make([]byte, 200<<20)
	for name, bomb := range map[string]func(*testing.T) []byte{
		"gzip":   gzipBomb,
		"zstd":   zstdBomb,
		"lz4":    func(t *testing.T) []byte { return smallBomb(t, zeros, wire.LZ4) },
		"snappy": func(t *testing.T) []byte { return smallBomb(t, zeros, wire.Snappy) },
	} {
		t.Run(name, func(t *testing.T) {
			c := testcluster.StartWith(t, testcluster.Options{})
			testcluster.RequireFake(t, "a real Kafka looks into batches before it takes them")
			topic := memoryTopic(t, c)
			raw := bomb(t)
			if len(raw) > 20<<20 {
				t.Fatalf("%d bytes", len(raw))
			}
			memoryProduce(t, c, topic, raw)
			memoryAppend(t, c, topic, wire.Batch{Records: []wire.Record{memoryRecord(4, nil)}})
			flags := []string{"plan", "--bootstrap-server", c.Bootstrap(), "--source", topic, "--target", topic + "-copy"}
			m := measure(t, append(flags, "--run-dir", filepath.Join(t.TempDir(), "run"))...)
			m.wants(t, 6, 350, "partition 0 at offset 3", "expands to more than 32MiB", "--memory 512MiB")
			m = measure(t, append(flags, "--run-dir", filepath.Join(t.TempDir(), "run"), "--memory", "64MiB")...)
			m.wants(t, 6, 150, "partition 0 at offset 3", "expands to more than 8MiB", "--memory 128MiB")
		})
	}
}

// smallBomb is a record of zeros, compressed as usual.
func smallBomb(t *testing.T, zeros []byte, codec wire.Codec) []byte {
	raw, err := wire.Encode(wire.Batch{Records: []wire.Record{memoryRecord(3, zeros)}, Codec: codec})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// gzipBomb expands to 3 GiB: one member for each mebibyte.
func gzipBomb(t *testing.T) []byte {
	var member bytes.Buffer
	w := gzip.NewWriter(&member)
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return rawBatch(t, wire.Gzip, bytes.Repeat(member.Bytes(), 3<<10))
}

// zstdBomb expands to 4 GiB: a frame of blocks that say "128 KiB of zeros" in four
// bytes each. The frame does not say how large it is.
func zstdBomb(t *testing.T) []byte {
	const blocks = 32 << 10
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 56} // magic, no content size, a window of 128 KiB
	for i := range blocks {
		header := uint32(128<<10)<<3 | 1<<1 // the size, and that one byte is repeated
		if i == blocks-1 {
			header |= 1 // the last block
		}
		frame = append(frame, byte(header), byte(header>>8), byte(header>>16), 0)
	}
	return rawBatch(t, wire.Zstd, frame)
}

// rawBatch is a batch of one record whose compressed bytes are given.
func rawBatch(t *testing.T, codec wire.Codec, compressed []byte) []byte {
	t.Helper()
	raw, err := wire.Encode(wire.Batch{Records: []wire.Record{memoryRecord(3, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	const atLength, atCRC, atAttributes, header = 8, 17, 21, 61
	raw = append(raw[:header], compressed...)
	binary.BigEndian.PutUint32(raw[atLength:], uint32(len(raw)-12))
	binary.BigEndian.PutUint16(raw[atAttributes:], uint16(codec))
	binary.BigEndian.PutUint32(raw[atCRC:], crc32.Checksum(raw[atAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// One record of each batch has headers, at another place each time. They are
// bytes of the batch: kept for too long, they keep all of it.
func TestMemory_FewHeaders(t *testing.T) {
	c := testcluster.StartWith(t, testcluster.Options{})
	const batches, each = 400, 400
	topic := c.CreateTopic(t, "memory-headers", 1, map[string]string{"cleanup.policy": "compact"})
	client := c.Client(t)
	value := make([]byte, 1000)
	for batch := range batches {
		var records []wire.Record
		for i := range each {
			r := memoryRecord(i, value)
			if i == batch {
				r.Headers = []wire.Header{{Key: "trace", Value: []byte("7")}}
			}
			records = append(records, r)
		}
		raw, err := wire.Encode(wire.Batch{Records: records, Codec: wire.LZ4})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.Produce(t.Context(), client, topic, 0, raw); err != nil {
			t.Fatal(err)
		}
	}
	measure(t, "plan", "--source", topic, "--target", topic+"-copy", "--partitioner", "source",
		"--bootstrap-server", c.Bootstrap(), "--memory", "64MiB", "--run-dir", filepath.Join(t.TempDir(), "run")).wants(t, 0, 100)
}

// All phases work with the least memory that is accepted, and keep to it.
func TestMemory_Smallest(t *testing.T) {
	c := testcluster.StartWith(t, testcluster.Options{})
	const partitions, batches, each = 16, 12, 500
	topic := c.CreateTopic(t, "memory", partitions, map[string]string{"cleanup.policy": "compact"})
	client := c.Client(t)
	random := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 400)
	for partition := range int32(partitions) {
		for batch := range batches {
			var records []wire.Record
			for i := range each {
				for j := range value {
					value[j] = byte(random.UintN(32))
				}
				records = append(records, memoryRecord(int(partition)*10_000+(batch*each+i)%5000, bytes.Clone(value)))
			}
			raw, err := wire.Encode(wire.Batch{Records: records, Codec: []wire.Codec{wire.None, wire.LZ4, wire.Zstd}[batch%3]})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wire.Produce(t.Context(), client, topic, partition, raw); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := filepath.Join(t.TempDir(), "run")
	connection := []string{"--bootstrap-server", c.Bootstrap(), "--memory", "64MiB", "--run-dir", run}
	m := measure(t, append([]string{"plan", "--source", topic, "--target", topic + "-copy", "--partitioner", "source"}, connection...)...)
	m.wants(t, 0, 120, "--memory 64MiB")
	measure(t, append([]string{"apply"}, connection...)...).wants(t, 0, 130)
	measure(t, append([]string{"verify"}, connection...)...).wants(t, 0, 120)
	measure(t, append([]string{"rehearse", "--runtime", "0.3", "--marker", "at-end"}, connection...)...).wants(t, 0, 120)
	if got, want := len(c.Read(t, topic+"-copy")), partitions*batches*each; got < want {
		t.Errorf("%d records on the target, want %d and padding", got, want)
	}
}
