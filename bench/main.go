// Command bench measures rekey against other ways to copy a topic, on one
// machine, in one run, so that the ratios mean something whatever the machine.
//
//	go run .           rekey and its rivals copy a topic in turns; one table each combination
//	go run . growth    time and memory against records, keys, partitions, padding; with a plot
//	go run . memory    peak memory against records, keys, partitions
//	go run . render    write the tables of docs/performance.md from bench/results/*.json
//
// -h after each lists its flags. Broker, rivals and rekey are processes of their
// own: the broker is the embedded one, or with -kafka a real Apache Kafka. Each
// contestant is timed from start to exit and must have dealt with every record,
// or the bench fails. -json keeps every single measurement.
//
// The module is separate so that what only the rivals need is no dependency of
// the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run carries out a command. Those of the second group are what the bench
// starts as processes of their own.
func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	commands := map[string]func(context.Context, []string) error{
		"growth": growth, "memory": memory, "render": render,
		"serve": serve, "seed": seedTopic, "copy": copyTopic, "consume": consumeTopic, "produce": produceTopic, "batches": produceBatches,
	}
	if len(args) > 0 {
		if command, known := commands[args[0]]; known {
			return command(ctx, args[1:])
		}
	}
	return compare(ctx, args)
}
