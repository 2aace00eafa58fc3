package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rekey/fixtures/seed"
	"rekey/fixtures/wire"
)

// settings are the flags that the commands have in common.
type settings struct {
	runs  int
	kafka bool
	json  string
}

func (s *settings) register(flags *flag.FlagSet, runs int) {
	flags.IntVar(&s.runs, "runs", runs, "runs of each measurement")
	flags.BoolVar(&s.kafka, "kafka", false, "a real Apache Kafka instead of the embedded broker")
	flags.StringVar(&s.json, "json", "", "`FILE` for all measurements")
}

// numbers is a flag: positive numbers separated by commas.
type numbers []int

func (n *numbers) String() string {
	var out []string
	for _, value := range *n {
		out = append(out, strconv.Itoa(value))
	}
	return strings.Join(out, ",")
}

func (n *numbers) Set(text string) error {
	*n = nil
	for part := range strings.SplitSeq(text, ",") {
		value, err := strconv.Atoi(part)
		if err != nil || value < 1 {
			return fmt.Errorf("%q is no positive number", part)
		}
		*n = append(*n, value)
	}
	return nil
}

// words is a flag: some words of a list, separated by commas.
type words struct {
	chosen, known []string
}

func (w *words) String() string { return strings.Join(w.chosen, ",") }

func (w *words) Set(text string) error {
	w.chosen = nil
	for word := range strings.SplitSeq(text, ",") {
		if !slices.Contains(w.known, word) {
			return fmt.Errorf("%q is none of %s", word, strings.Join(w.known, ", "))
		}
		w.chosen = append(w.chosen, word)
	}
	return nil
}

func (w *words) has(word string) bool { return slices.Contains(w.chosen, word) }

// topicFlags describe a generated topic; the bench's own processes take them
// from each other.
func topicFlags(flags *flag.FlagSet, o *seed.Options) {
	flags.IntVar(&o.Records, "records", 0, "records")
	flags.IntVar(&o.Keys, "keys", 0, "business keys to choose from")
	flags.IntVar(&o.RecordBytes, "size", 0, "bytes of a record")
	flags.Float64Var(&o.Skew, "skew", 0, "Zipf exponent of the business keys; 0: all alike")
	flags.Int64Var(&o.FirstOffset, "first", 0, "offset of the first record in each partition")
	flags.Func("partitions", "partitions", func(text string) error {
		n, err := strconv.ParseInt(text, 10, 32)
		o.Partitions = int32(n)
		return err
	})
	flags.Func("codec", "compression", func(text string) (err error) {
		o.Codec, err = wire.ParseCodec(text)
		return err
	})
}

// topicArgs are the flags that topicFlags reads.
func topicArgs(o seed.Options) []string {
	return []string{
		fmt.Sprintf("-records=%d", o.Records), fmt.Sprintf("-keys=%d", o.Keys), fmt.Sprintf("-size=%d", o.RecordBytes),
		fmt.Sprintf("-skew=%g", o.Skew), fmt.Sprintf("-first=%d", o.FirstOffset), fmt.Sprintf("-partitions=%d", o.Partitions), "-codec=" + o.Codec.String(),
	}
}
