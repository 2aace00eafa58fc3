package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"rekey/fixtures/broker"
	"rekey/fixtures/seed"
	"rekey/migrate"
	"rekey/report"
	"rekey/rewrite"
)

const (
	demoSource = "action-state"
	demoTarget = "action-state-rekeyed"
)

// demoTopic is the legacy topic of the demo: mostly user_* keys, which crowd
// one partition, and one of each kind of key that no release wrote.
var demoTopic = seed.Options{
	Seed: 1, Partitions: 8, Records: 20_000, Keys: 1000,
	Tombstones: 300, Unparseable: 24, Headers: 50, EmptyValues: 3, NullText: 2,
}

// runDemo shows a whole migration on an embedded broker.
func runDemo(c *cli.Context) (err error) {
	if err := noArguments(c); err != nil {
		return err
	}
	dir := c.String("run-dir")
	if dir == "" {
		if dir, err = os.MkdirTemp("", "rekey-demo-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	} else if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		// The broker of an earlier demo is gone, so there is nothing to go on with.
		return usage(fmt.Errorf("--run-dir %s is not empty: name a new folder", dir))
	}
	b, err := broker.Start(broker.Options{})
	if err != nil {
		return fmt.Errorf("start the embedded broker: %w", err)
	}
	defer b.Close()
	if err := seedDemo(c.Context, b.Addrs()); err != nil {
		return fmt.Errorf("seed the demo topic: %w", err)
	}
	out, err := demoMigration(c, b.Addrs(), dir)
	if err != nil {
		return err
	}
	if asJSON(c) {
		return showOutcome(c, out)
	}
	return tellDemo(c, out)
}

func demoMigration(c *cli.Context, addrs []string, dir string) (*migrate.Outcome, error) {
	o := migrate.DefaultPlanOptions()
	o.Connections.Source.Bootstrap = addrs
	o.Source, o.Target, o.RunDir = demoSource, demoTarget, dir
	o.OnUnparseable = rewrite.PolicyQuarantine
	return migrate.Migrate(c.Context, o, false, environment(c))
}

func seedDemo(ctx context.Context, addrs []string) error {
	_, err := seed.Write(ctx, addrs, demoSource, demoTopic, map[string]string{"cleanup.policy": "compact"})
	return err
}

// tellDemo explains in a screenful what happened.
func tellDemo(c *cli.Context, out *migrate.Outcome) error {
	demo := report.Demo{Plan: out.Plan, Apply: out.Apply, Verify: out.Verify, RunDir: c.String("run-dir")}
	return demo.WriteText(c.App.Writer, style(c))
}
