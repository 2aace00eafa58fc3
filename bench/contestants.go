package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"rekey/report"
)

// The contestants, in the order of their turns and of the tables.
const (
	consumeOnly  = "consume"
	produceOnly  = "produce"
	batchesOnly  = "batches"
	consumerPerf = "consumer-perf"
	producerPerf = "producer-perf"
	handWritten  = "copy"
	rekeyPlan    = "plan"
	rekeyApply   = "apply"
	rekeyVerify  = "verify"
	kcatPipe     = "kcat"
	mirrorMaker  = "mirror"
)

var contestantIDs = []string{consumeOnly, produceOnly, batchesOnly, consumerPerf, producerPerf, handWritten, rekeyPlan, rekeyApply, rekeyVerify, kcatPipe, mirrorMaker}

var contestantNames = map[string]string{
	consumeOnly: "consume only (franz-go)", produceOnly: "produce only (franz-go)", batchesOnly: "produce only (batches of ready records)",
	consumerPerf: "kafka-consumer-perf-test", producerPerf: "kafka-producer-perf-test",
	handWritten: "hand-written copy (franz-go)", rekeyPlan: "rekey plan", rekeyApply: "rekey apply", rekeyVerify: "rekey verify",
	kcatPipe: "kcat pipe (keys unchanged)", mirrorMaker: "MirrorMaker 2 (keys unchanged)",
}

// needsKafka says which cannot run on the embedded broker, or have no say there.
func needsKafka(id string) bool {
	return id == consumerPerf || id == producerPerf || id == mirrorMaker
}

// available are the contestants of this machine and broker, out of those that
// were asked for; with none asked for, all that can take part.
func available(asked []string, realKafka bool) ([]string, error) {
	var out []string
	for _, id := range contestantIDs {
		wanted := len(asked) == 0 || (&words{chosen: asked}).has(id)
		_, missing := exec.LookPath("kcat")
		switch {
		case !wanted:
			continue
		case needsKafka(id) && !realKafka:
			if len(asked) > 0 {
				return nil, fmt.Errorf("%s needs -kafka", id)
			}
			continue
		case id == kcatPipe && missing != nil:
			if len(asked) > 0 {
				return nil, missing
			}
			fmt.Fprintln(os.Stderr, "bench: kcat is not installed and is left out")
			continue
		}
		out = append(out, id)
	}
	have := &words{chosen: out}
	if have.has(rekeyApply) && !have.has(rekeyPlan) || have.has(rekeyVerify) && !have.has(rekeyApply) {
		return nil, errors.New("apply needs plan, and verify needs apply")
	}
	return out, nil
}

// contestants sets up one turn of each. Their targets have the number of the run
// in their names.
func (l *lab) contestants(ctx context.Context, ids []string, source *seeded, run int) ([]contestant, error) {
	var out []contestant
	rekey := l.rekey(source, run, "none", !(&words{chosen: ids}).has(rekeyVerify))
	for _, id := range ids {
		var c contestant
		var err error
		target := fmt.Sprintf("%s-%d", id, run)
		codec := source.Codec.String()
		switch id {
		case consumeOnly:
			c = contestant{args: []string{l.self, "consume", l.addrs, source.topic}, check: parseTold}
		case produceOnly, batchesOnly:
			c = l.copies(source, target, append(append([]string{l.self, id}, topicArgs(source.Options)...), l.addrs, target))
			c.before = func(ctx context.Context) error { return l.createTopic(ctx, target, source.Partitions, "compact") }
		case consumerPerf:
			c, err = l.consumerPerf(ctx, source)
		case producerPerf:
			c, err = l.producerPerf(ctx, source, target)
		case handWritten:
			c = l.copies(source, target, []string{l.self, "copy", l.addrs, source.topic, target, codec})
		case rekeyPlan, rekeyApply, rekeyVerify:
			c = rekey[id]
		case kcatPipe:
			c = l.copies(source, target, kcatCommand(l.addrs, source.topic, target, codec))
			c.before = func(ctx context.Context) error { return l.createTopic(ctx, target, source.Partitions, "compact") }
			c.check = func(context.Context, []byte) (told, error) { return l.counted(ctx, told{}, target, source) }
		case mirrorMaker:
			c, err = l.mirrorMaker(ctx, source, run)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", contestantNames[id], err)
		}
		c.id = id
		out = append(out, c)
	}
	return out, nil
}

// copies is a contestant that prints what it did and whose target must hold
// exactly that.
func (l *lab) copies(source *seeded, target string, args []string) contestant {
	return contestant{args: args, after: []string{target}, check: func(ctx context.Context, output []byte) (told, error) {
		said, err := parseTold(ctx, output)
		if err != nil {
			return said, err
		}
		return l.counted(ctx, said, target, source)
	}}
}

// counted lets the broker say how many records a target has.
func (l *lab) counted(ctx context.Context, said told, target string, source *seeded) (told, error) {
	records, err := l.count(ctx, target, source.Partitions)
	if err == nil && said.Records > 0 && said.Records != records {
		err = fmt.Errorf("it says %d records and %d are on its target", said.Records, records)
	}
	return told{Records: records, Seconds: said.Seconds}, err
}

// rekey are the three phases. The target is deleted after the last of them.
func (l *lab) rekey(source *seeded, run int, align string, withoutVerify bool) map[string]contestant {
	target, dir := fmt.Sprintf("rekey-%d", run), filepath.Join(l.dir, fmt.Sprintf("%s-%d", source.topic, run))
	phase := func(name string, more ...string) []string {
		return append([]string{l.product, name, "--bootstrap-server", l.addrs, "--run-dir", dir, "--quiet"}, more...)
	}
	plan := contestant{id: rekeyPlan, args: phase("plan", "--source", source.topic, "--target", target, "--align", align),
		check: func(context.Context, []byte) (told, error) {
			r, err := readEvidence(dir, "report.json", report.ReadReport)
			if err != nil {
				return told{}, err
			}
			return told{Records: r.Counts.Rewritten + r.Counts.Tombstones}, nil
		}}
	apply := contestant{id: rekeyApply, args: phase("apply"),
		check: func(ctx context.Context, _ []byte) (told, error) {
			a, err := readEvidence(dir, "apply.json", report.ReadApply)
			if err != nil {
				return told{}, err
			}
			records, err := l.count(ctx, target, source.Partitions)
			if err == nil && records != a.Written+a.Padded {
				err = fmt.Errorf("it says %d records and %d of padding, and %d are on its target", a.Written, a.Padded, records)
			}
			return told{Records: a.Written}, err
		}}
	verify := contestant{id: rekeyVerify, args: phase("verify"), after: []string{target},
		check: func(context.Context, []byte) (told, error) {
			v, err := readEvidence(dir, "verify.json", report.ReadVerify)
			if err != nil {
				return told{}, err
			}
			return told{Records: v.Found}, nil
		}}
	if withoutVerify {
		apply.after = []string{target}
	}
	return map[string]contestant{rekeyPlan: plan, rekeyApply: apply, rekeyVerify: verify}
}

// readEvidence reads a file of a run directory.
func readEvidence[T any](dir, name string, read func(io.Reader) (T, error)) (out T, err error) {
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return out, err
	}
	defer file.Close()
	return read(file)
}

// kcatCommand is what people use today: it changes no key and drops headers and
// timestamps. Keys and values hold no byte below a blank but the newline.
func kcatCommand(addrs, source, target, codec string) []string {
	const fields = `-K '\x1f' -D '\x1e'`
	consume := fmt.Sprintf(`kcat -b %s -C -t %s -o beginning -e -q %s -X fetch.message.max.bytes=4194304`, addrs, source, fields)
	produce := fmt.Sprintf(`kcat -b %s -P -t %s %s -Z -X compression.codec=%s -X linger.ms=5 -X batch.size=1000000`, addrs, target, fields, codec)
	return []string{"sh", "-c", strings.Join([]string{consume, produce}, " | ")}
}
