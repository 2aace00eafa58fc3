// Command bench measures rekey against other ways to copy a topic, on one
// machine, in one run, so that the ratios mean something whatever the machine.
//
// It starts a broker in a process of its own (the embedded one, or with -kafka
// a real Apache Kafka), seeds a legacy action-state topic, and lets the rivals
// and rekey copy it in turns. Each is a process of its own, timed from start to
// exit. The table shows medians, the smallest and largest figure, peak memory,
// and the ratio to the hand-written copy.
//
//	go run . -partitions 8,64 -records 1000000 -runs 5
//
// The module is separate so that what only the rivals need is no dependency of
// the product.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"rekey/fixtures/broker"
	"rekey/fixtures/kafka"
	"rekey/fixtures/seed"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run carries out one of the commands that the bench starts as processes, or
// the bench itself.
func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) > 0 {
		switch args[0] {
		case "serve":
			return serve(ctx)
		case "copy":
			return copyTopic(ctx, args[1], args[2], args[3], args[4])
		case "consume":
			return consumeTopic(ctx, args[1], args[2])
		}
	}
	return bench(ctx, args)
}

// serve runs the embedded broker until it is told to stop.
func serve(ctx context.Context) error {
	b, err := broker.Start(broker.Options{})
	if err != nil {
		return err
	}
	defer b.Close()
	fmt.Println(strings.Join(b.Addrs(), ","))
	<-ctx.Done()
	return nil
}

type settings struct {
	records, runs, valueBytes int
	partitions                []int
	codec                     string
	kafka                     bool
}

func bench(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	var s settings
	partitions := flags.String("partitions", "8,64", "partition counts, one table each")
	flags.IntVar(&s.records, "records", 1_000_000, "records of the source topic")
	flags.IntVar(&s.runs, "runs", 5, "runs of each contestant")
	flags.IntVar(&s.valueBytes, "value", 40, "filler in each value, beside about 350 bytes of JSON")
	flags.StringVar(&s.codec, "codec", "lz4", "compression of the source: none, gzip, snappy, lz4, zstd")
	flags.BoolVar(&s.kafka, "kafka", false, "a real Apache Kafka instead of the embedded broker")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for text := range strings.SplitSeq(*partitions, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-partitions %q: want positive numbers separated by commas", *partitions)
		}
		s.partitions = append(s.partitions, n)
	}
	dir, err := os.MkdirTemp("", "rekey-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	product := dir + "/rekey"
	build := exec.CommandContext(ctx, "go", "build", "-o", product, ".")
	build.Dir = ".." // the product is another module
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build rekey: %w", err)
	}
	for _, n := range s.partitions {
		if err := s.table(ctx, dir, product, n); err != nil {
			return err
		}
	}
	return nil
}

// table measures everything on one topic.
func (s settings) table(ctx context.Context, dir, product string, partitions int) error {
	addrs, stop, err := s.startBroker(ctx)
	if err != nil {
		return err
	}
	defer stop()
	codec, err := seedCodec(s.codec)
	if err != nil {
		return err
	}
	const source = "action-state"
	if _, err := seed.Write(ctx, strings.Split(addrs, ","), source, seed.Options{
		Seed: 1, Partitions: int32(partitions), Records: s.records, ValueBytes: s.valueBytes, Codec: codec,
	}, nil); err != nil {
		return fmt.Errorf("seed the source: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	figures := newFigures(s.records)
	for i := range s.runs {
		target, runDir := fmt.Sprintf("rekey-%d", i), fmt.Sprintf("%s/run-%d-%d", dir, partitions, i)
		contestants := []contestant{
			{"consume only (franz-go)", []string{self, "consume", addrs, source}},
			{"hand-written copy (franz-go)", []string{self, "copy", addrs, source, fmt.Sprintf("franz-%d", i), s.codec}},
			{"rekey plan", []string{product, "plan", "--bootstrap-server", addrs, "--source", source, "--target", target, "--run-dir", runDir, "--align", "none", "--on-unparseable", "quarantine", "--quiet"}},
			{"rekey apply", []string{product, "apply", "--bootstrap-server", addrs, "--run-dir", runDir, "--quiet"}},
			{"rekey verify", []string{product, "verify", "--bootstrap-server", addrs, "--run-dir", runDir, "--quiet"}},
		}
		if pipe, found := kcatPipe(addrs, source, fmt.Sprintf("kcat-%d", i)); found {
			if err := createTopic(ctx, addrs, fmt.Sprintf("kcat-%d", i), partitions); err != nil {
				return err
			}
			contestants = append(contestants, contestant{"kcat pipe (keys unchanged)", pipe})
		}
		for _, c := range contestants {
			if err := figures.measure(ctx, c); err != nil {
				return err
			}
		}
	}
	fmt.Printf("\n%d records, %d partitions, %s, %s; %d runs\n\n", s.records, partitions, s.codec, s.brokerName(), s.runs)
	figures.print("hand-written copy (franz-go)")
	return nil
}

func (s settings) brokerName() string {
	if s.kafka {
		return "Apache Kafka"
	}
	return "embedded broker"
}

// startBroker starts a broker in a process of its own.
func (s settings) startBroker(ctx context.Context) (addrs string, stop func(), err error) {
	if s.kafka {
		cluster, err := kafka.Start(ctx, kafka.Options{Nodes: 1, Optimize: true, Heap: "2g"})
		if err != nil {
			return "", nil, err
		}
		return strings.Join(cluster.Addrs(), ","), func() { report(cluster.Stop()) }, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	server := exec.Command(self, "serve")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := server.Start(); err != nil {
		return "", nil, err
	}
	if _, err := fmt.Fscanln(out, &addrs); err != nil {
		return "", nil, fmt.Errorf("the broker did not start: %w", err)
	}
	return addrs, func() {
		report(server.Process.Signal(syscall.SIGTERM))
		report(server.Wait())
	}, nil
}

// report prints what went wrong while cleaning up; the figures are made by then.
func report(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}
