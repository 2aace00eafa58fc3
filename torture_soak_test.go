//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"rekey/fixtures/reader"
	"rekey/fixtures/seed"
	"rekey/fixtures/testcluster"
	"rekey/fixtures/torture"
)

// A soak: a topic that is far larger than memory, copied by applies of which
// each is killed after some seconds, until one gets to its end. Memory and open
// files of every process are watched; both topics are summed up by an ordinary
// consumer in the end.
//
//	REKEY_SOAK_RECORDS=N  records of the source; 10 million unless given
//	REKEY_SOAK_SECONDS=N  an apply is killed after N to 2N seconds; 10 unless given
func TestTortureSoak(t *testing.T) {
	testcluster.RequireReal(t, "the embedded broker holds everything in memory")
	if os.Getenv("REKEY_TORTURE") == "" {
		t.Skip("takes minutes and gigabytes: set REKEY_TORTURE=1")
	}
	records, seconds := setting(t, "REKEY_SOAK_RECORDS", 10_000_000), setting(t, "REKEY_SOAK_SECONDS", 10)
	const partitions = 16
	a := newArena(t, "soak: kill -9 again and again")
	a.result.Records = int64(records)
	a.source = a.Topic(t, "source")
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if _, err := seed.Write(ctx, a.Addrs(), a.source, seed.Options{Seed: a.result.Seed, Partitions: partitions, Records: records, Keys: records / 4,
		Tombstones: records / 50, Unparseable: records / 1000, Headers: 50, ValueBytes: 20, Step: 1, Codec: 3},
		map[string]string{"cleanup.policy": "delete", "retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
	m := &migration{arena: a, target: a.Topic(t, "target"), dir: t.TempDir() + "/run"}
	m.flags = []string{"--source", a.source, "--target", m.target, "--on-unparseable", "quarantine", "--align", "none",
		"--target-config", "min.compaction.lag.ms=86400000"} // both are compared record by record
	phase := func(args ...string) *process {
		p := m.start(args...)
		m.watch(p)
		return p
	}
	end := func(p *process) {
		t.Helper()
		<-p.ended
		peak := p.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10
		a.result.Runs++
		if a.result.FirstMiB == 0 {
			a.result.FirstMiB = peak
		}
		a.result.PeakMiB = max(a.result.PeakMiB, peak)
		t.Logf("%s: %v, %d MiB", p.command, p.ProcessState, peak)
	}
	plan := phase(append([]string{"plan"}, m.flags...)...)
	if end(plan); plan.ProcessState.ExitCode() != 0 {
		t.Fatal(plan)
	}
	for killed := true; killed; {
		p := phase("apply")
		timer := time.AfterFunc(time.Duration((1+a.rand.Float64())*float64(seconds)*float64(time.Second)), func() {
			_ = p.Process.Kill() // it may have ended
		})
		end(p)
		timer.Stop()
		switch killed = p.killed(); {
		case killed:
			if a.result.Hits++; a.result.Hits > 1 {
				a.result.ResumeHits++
			}
			// A resume reads again what is there, which takes longer each time.
			seconds += 5
		case p.ProcessState.ExitCode() != 0:
			a.result.Refusals++
			t.Fatal(p)
		}
	}
	verify := phase("verify")
	if end(verify); verify.ProcessState.ExitCode() != 0 {
		a.result.Refusals++
		t.Fatal(verify)
	}
	if problem := a.soaked(ctx, m.target, partitions); problem != "" {
		a.result.Failures++
		a.result.FalseSuccess++
		t.Error(problem)
	}
}

func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a positive number", name, text)
	}
	return n
}

// watch notes the most files that a process has open, five times a second.
func (m *migration) watch(p *process) {
	most := make(chan int, 1)
	go func() {
		n := 0
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-p.ended:
				most <- n
				return
			case <-tick.C:
			}
			if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Process.Pid)); err == nil {
				n = max(n, len(files))
			}
		}
	}()
	m.Cleanup(func() { m.result.PeakFiles = max(m.result.PeakFiles, <-most) })
}

// soaked compares the sums of both topics, and says what is wrong.
func (a *arena) soaked(ctx context.Context, target string, partitions int32) string {
	a.Helper()
	var want torture.Digest
	if err := a.stream(ctx, a.source, func(r reader.Record) error { want.Demanded(r, partitions); return nil }); err != nil {
		a.Fatal(err)
	}
	var have torture.Target
	if err := a.stream(ctx, target, have.Add); err != nil {
		return err.Error()
	}
	a.Logf("%d records demanded, %d on the target, %d padding", want.Records, have.Records, have.Padding)
	if want != have.Digest {
		return fmt.Sprintf("the target is another one: %+v, want %+v", have.Digest, want)
	}
	return ""
}

// stream reads a topic without holes to its present end, in order by partition.
func (a *arena) stream(ctx context.Context, topic string, fn func(reader.Record) error) error {
	ranges, err := reader.Ranges(ctx, a.Addrs(), topic)
	if err != nil {
		return err
	}
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	for partition, r := range ranges {
		if r.Start < r.End {
			from[partition], left[partition] = kgo.NewOffset().At(r.Start), r.End
		}
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(a.Addrs()...), kgo.FetchMaxPartitionBytes(4<<20), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return err
	}
	defer consumer.Close()
	for len(left) > 0 {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end, wanted := left[r.Partition]; !wanted || r.Offset >= end || err != nil {
				return
			}
			record := reader.Record{Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				record.Headers = append(record.Headers, reader.Header{Key: h.Key, Value: h.Value})
			}
			if err = fn(record); err == nil && r.Offset+1 == left[r.Partition] {
				delete(left, r.Partition)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
