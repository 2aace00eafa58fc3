package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"rekey/migrate"
	"rekey/report"
	"rekey/rewrite"
)

// commands are all commands with their flags. Flags that Kafka's own tools have
// are named as there; each is an environment variable too.
func commands(stdin io.Reader) []*cli.Command {
	all := commandList(stdin)
	for _, command := range all {
		command.OnUsageError = usageError // a command does not have it from the app
		command.CustomHelpTemplate = helpOf(command)
		command.HideHelpCommand = true
		action := command.Action
		command.Action = func(c *cli.Context) error {
			// Before anything is done, not when the result is to be shown.
			if form := c.String("output"); form != "text" && form != "json" {
				return usage(fmt.Errorf("unknown --output %q; known: text, json", form))
			}
			if form := c.String("log-format"); form != "text" && form != "json" {
				return usage(fmt.Errorf("unknown --log-format %q; known: text, json", form))
			}
			if err := fromFlinkConfig(c); err != nil {
				return err
			}
			return action(c)
		}
	}
	return all
}

func commandList(stdin io.Reader) []*cli.Command {
	return []*cli.Command{
		{
			Name:  "plan",
			Usage: "read-only: scan, decide on every key, write plan and reports",
			UsageText: "rekey plan --bootstrap-server HOST:PORT --source TOPIC --target TOPIC \\\n" +
				"           --run-dir DIR [flags]\n\n" +
				"example: rekey plan --bootstrap-server localhost:9092 --source action-state \\\n" +
				"           --target action-state-2 --run-dir ./run",
			Flags: join(connectionFlags(), planFlags(),
				[]cli.Flag{&cli.BoolFlag{Name: "extend", Usage: "add what was appended since to the plan in --run-dir", EnvVars: env("extend")}}, outputFlags()),
			Action: runPlan,
		},
		{
			Name:  "apply",
			Usage: "carry out a plan; resumes by itself after an interruption",
			UsageText: "rekey apply --bootstrap-server HOST:PORT --run-dir DIR [flags]\n\n" +
				"example: rekey apply --bootstrap-server localhost:9092 --run-dir ./run",
			Flags: join(connectionFlags(), runDirFlag(), liveFlag(), shardFlag(), outputFlags()),
			Action: func(c *cli.Context) error {
				if c.IsSet("shard") && c.String("shard") == "" {
					// A script whose variable is empty must not take over from all shards.
					return usage(errors.New("--shard is empty: want i/n, or leave it out to copy everything"))
				}
				return runPhase(c, func(o migrate.RunOptions, env migrate.Environment) (view, error) {
					o.Shard = c.String("shard")
					out, err := migrate.Apply(c.Context, o, env)
					return viewOf(out), err
				})
			},
		},
		{
			Name:  "verify",
			Usage: "read both topics again and say whether the copy is right",
			UsageText: "rekey verify --bootstrap-server HOST:PORT --run-dir DIR [flags]\n\n" +
				"example: rekey verify --bootstrap-server localhost:9092 --run-dir ./run",
			Flags: join(connectionFlags(), runDirFlag(), liveFlag(), outputFlags()),
			Action: func(c *cli.Context) error {
				return runPhase(c, func(o migrate.RunOptions, env migrate.Environment) (view, error) {
					out, err := migrate.Verify(c.Context, o, env)
					return viewOf(out), err
				})
			},
		},
		{
			Name:  "rehearse",
			Usage: "replay both topics as the job will recover, and compare",
			UsageText: "rekey rehearse --bootstrap-server HOST:PORT --run-dir DIR --runtime RELEASE \\\n" +
				"           --marker FILE|at-end [flags]\n\n" +
				"example: rekey rehearse --bootstrap-server localhost:9092 --run-dir ./run \\\n" +
				"           --runtime 0.3 --marker at-end",
			Flags:  join(connectionFlags(), runDirFlag(), rehearseFlags(), liveFlag(), outputFlags()),
			Action: runRehearse,
		},
		{
			Name:  "migrate",
			Usage: "plan, apply and verify in one go, for scripts",
			UsageText: "rekey migrate --bootstrap-server HOST:PORT --source TOPIC --target TOPIC \\\n" +
				"              --run-dir DIR [flags]\n\n" +
				"example: rekey migrate --bootstrap-server localhost:9092 \\\n" +
				"           --source action-state --target action-state-2 --run-dir ./run \\\n" +
				"           --on-unparseable quarantine",
			Flags: join(connectionFlags(), planFlags(), liveFlag(),
				[]cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "only plan", EnvVars: env("dry-run")}}, outputFlags()),
			Action: runMigrate,
		},
		{
			Name:  "repair",
			Usage: "turn reviewed keys into repairs, for the next plan or to replay",
			UsageText: "rekey repair --run-dir DIR --accept REASON[,REASON...]\n" +
				"rekey repair --run-dir DIR --edit FILE\n" +
				"rekey repair --run-dir DIR --replay --bootstrap-server HOST:PORT\n\n" +
				"example: rekey repair --run-dir ./run --accept bad-event-uuid",
			Flags:  join(runDirFlag(), repairFlags(), connectionFlags(), liveFlag(), outputFlags()),
			Action: runRepair,
		},
		{
			Name:  "explain",
			Usage: "show how keys parse, what they become, and where they land",
			UsageText: "rekey explain [flags] KEY...   (- reads keys from standard input, one a line)\n\n" +
				"example: rekey explain --partitions 8 \\\n           user_123_0_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448",
			Flags:  join(formatFlags(), []cli.Flag{&cli.IntFlag{Name: "partitions", Value: 1, Usage: "partition `COUNT` of the topic", EnvVars: env("partitions")}}, outputFlags()),
			Action: func(c *cli.Context) error { return runExplain(c, stdin) },
		},
		{
			Name:  "convert",
			Usage: "re-key lines of standard input, for other stores and exports",
			UsageText: "rekey convert [flags] < OLD > NEW\n\n" +
				"example: rekey convert --lines json --run-dir ./run < old.jsonl > new.jsonl",
			Flags:  join(convertFlags(), runDirFlag(), outputFlags()),
			Action: func(c *cli.Context) error { return runConvert(c, stdin) },
		},
		{
			Name:  "demo",
			Usage: "all of it on an embedded broker; needs nothing installed",
			UsageText: "rekey demo [--run-dir DIR]\n\n" +
				"example: rekey demo --run-dir ./demo-run",
			Flags:  join([]cli.Flag{&cli.StringFlag{Name: "run-dir", Usage: "keep plan and reports in `DIR`", EnvVars: env("run-dir")}}, outputFlags()),
			Action: runDemo,
		},
	}
}

// helpOf is the help of a command, for a terminal of 80 columns. It is handed to
// the library as a template without anything to fill in.
func helpOf(c *cli.Command) string {
	const margin, column, width = 3, 26, 80
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUSAGE:\n   %s\n\nFLAGS (each is an environment variable too: %s is --run-dir):\n",
		wrap("rekey "+c.Name+" - "+c.Usage, 0, width), strings.ReplaceAll(strings.ReplaceAll(c.UsageText, "\n", "\n   "), "\n   \n", "\n\n"), env("run-dir")[0])
	for _, flag := range append(slices.Clone(c.Flags), &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show this help"}) {
		flag := flag.(cli.DocGenerationFlag)
		usage := flag.GetUsage()
		name := "--" + flag.Names()[0]
		for _, short := range flag.Names()[1:] {
			name += ", -" + short
		}
		if before, rest, found := strings.Cut(usage, "`"); found {
			value, after, _ := strings.Cut(rest, "`")
			name += " " + value
			usage = before + value + after
		}
		if text, ok := flag.(*cli.StringFlag); ok && text.Value != "" {
			usage += " (default: " + text.Value + ")"
		}
		gap := strings.Repeat(" ", max(0, column-margin-len(name)))
		if len(name) > column-margin-2 {
			gap = "\n" + strings.Repeat(" ", column)
		}
		fmt.Fprintf(&b, "%*s%s%s%s\n", margin, "", name, gap, wrap(usage, column, width))
	}
	return b.String()
}

// wrap breaks text between words; lines after the first are indented.
func wrap(text string, indent, width int) string {
	var b strings.Builder
	at := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case at+1+len(word) > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String()
}

func join(groups ...[]cli.Flag) []cli.Flag {
	var flags []cli.Flag
	for _, group := range groups {
		flags = append(flags, group...)
	}
	return flags
}

// env is the environment variable of a flag: REKEY_RUN_DIR for --run-dir.
func env(flag string) []string {
	return []string{"REKEY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))}
}

func text(name, value, usage string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Value: value, Usage: usage, EnvVars: env(name)}
}

func connectionFlags() []cli.Flag {
	return []cli.Flag{
		text("bootstrap-server", "", "`HOST:PORT` of brokers, separated by commas"),
		text("command-config", "", "client.properties `FILE` as for Kafka's own tools"),
		text("flink-config", "", "config.yaml `FILE` of Flink: brokers and source"),
		text("target-bootstrap-server", "", "`HOST:PORT` of the target's brokers, if elsewhere"),
		text("target-command-config", "", "client.properties `FILE` for the target's cluster"),
		text("memory", "", "`SIZE` to keep to, as 1GiB (default: 256MiB)"),
	}
}

func formatFlags() []cli.Flag {
	defaults := migrate.DefaultPlanOptions()
	return []cli.Flag{
		text("from", defaults.From, "key `FORMAT` of the source: legacy, keygroup-first, keygroup-last"),
		text("to", defaults.To, "key `FORMAT` of the target: escaped, length-prefixed, flink-agents-0.4"),
		text("partitioner", defaults.Partitioner, "`NAME` of the partitioner: flink-agents, java-default, source"),
		text("key-type", "", "(0.4) `TYPE` of the job's keys, such as string or long"),
		&cli.IntFlag{Name: "max-parallelism", Usage: fmt.Sprintf("(0.4) `N` of the job (default: %d, as Flink's)", migrate.DefaultMaxParallelism), EnvVars: env("max-parallelism")},
		text("actions", "", "(0.4) `FILE` with names; plan writes a template"),
		text("agent-plan", "", "(0.4) `FILE` of the job, for Python actions"),
	}
}

func planFlags() []cli.Flag {
	defaults := migrate.DefaultPlanOptions()
	return join(
		[]cli.Flag{
			text("source", "", "`TOPIC` to read; it is only ever read"),
			text("target", "", "`TOPIC` to write; apply creates it"),
		},
		runDirFlag(), formatFlags(),
		[]cli.Flag{
			text("on-unparseable", string(defaults.OnUnparseable), "`POLICY`: fail, quarantine, copy"),
			text("quarantine-topic", "", "`TOPIC` for quarantined records (default: a file)"),
			text("repairs", "", "repairs `FILE`, as rekey repair writes it"),
			&cli.BoolFlag{Name: "allow-unused-repairs", Usage: "accept repairs of keys that are not in the topic", EnvVars: env("allow-unused-repairs")},
			text("on-collision", defaults.OnCollision, "`WHAT` then: fail, latest record"),
			text("prune", "", "forget what `FILE` lists: business keys, up to a number"),
			text("on-incompatible-value", "", "(0.4) `POLICY`: fail (default), quarantine, copy"),
			text("prune-before", "", "forget what ends before the marker `FILE`"),
			text("pruned", "", "`FORM` of pruned keys: tombstone (the default), omit"),
			text("history", string(defaults.History), "`RECORDS` to copy of a key: all, latest"),
			text("align", defaults.Align, "pad the target up to `WHERE`: source-end, none, or a FILE with a savepoint's markers"),
			&cli.Int64Flag{Name: "max-padding", Usage: "`N` padding records at most (default: no limit)", EnvVars: env("max-padding")},
			&cli.IntFlag{Name: "target-partitions", Usage: "partition `COUNT` of the target, if not the source's", EnvVars: env("target-partitions")},
			&cli.StringSliceFlag{Name: "target-config", Usage: "`NAME=VALUE` of a target topic setting; repeatable", EnvVars: env("target-config")},
			text("compression", "", "`CODEC` of the target, if not the source's: none, gzip, snappy, lz4, zstd"),
			text("isolation-level", defaults.Isolation, "`LEVEL`: read_uncommitted, as the job; or read_committed"),
		})
}

func repairFlags() []cli.Flag {
	return []cli.Flag{
		text("accept", "", "`REASON` or several with commas: accept what is suggested for their keys"),
		text("edit", "", "`FILE` with lines made by hand: rewrite, drop or copy"),
		&cli.BoolFlag{Name: "replay", Usage: "write quarantined records that are repaired now to the target, as apply does", EnvVars: env("replay")},
	}
}

func runDirFlag() []cli.Flag {
	return []cli.Flag{text("run-dir", "", "`DIR` of one migration's plan and reports")}
}

func rehearseFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "runtime", Usage: "`RELEASE` of Flink Agents that restores the savepoint: " + strings.Join(migrate.RuntimeNames(), ", ") + "; may be repeated", EnvVars: env("runtime")},
		&cli.StringSliceFlag{Name: "marker", Usage: "`FILE` with a savepoint's recovery markers, or at-end: taken now; may be repeated", EnvVars: env("marker")},
	}
}

func liveFlag() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{Name: "allow-live-source", Usage: "accept a source that is still written to", EnvVars: env("allow-live-source")}}
}

func shardFlag() []cli.Flag {
	return []cli.Flag{text("shard", "", "`I/N`: of N at once, take the source partitions p with p % N = I; then run apply once more without it")}
}

func outputFlags() []cli.Flag {
	return []cli.Flag{
		text("output", "text", "`FORM` of the result: text, json"),
		text("log-format", "text", "`FORM` of messages: text, json"),
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress", EnvVars: env("quiet")},
		&cli.BoolFlag{Name: "verbose", Usage: "log retries and other details to standard error", EnvVars: env("verbose")},
	}
}

// view is a result that can be shown.
type view interface {
	WriteSummary(io.Writer, report.Style) error
}

// viewOf hides a nil pointer from the interface.
func viewOf[T any, P interface {
	*T
	view
}](p P) view {
	if p == nil {
		return nil
	}
	return p
}

func runPlan(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	o, err := planOptions(c)
	if err != nil {
		return err
	}
	env, err := limited(c)
	if err != nil {
		return err
	}
	r, err := migrate.Plan(c.Context, o, env)
	return errors.Join(err, show(c, viewOf(r)))
}

func runPhase(c *cli.Context, phase func(migrate.RunOptions, migrate.Environment) (view, error)) error {
	if err := noArguments(c); err != nil {
		return err
	}
	o := migrate.RunOptions{Connections: connections(c), RunDir: c.String("run-dir"), AllowLiveSource: c.Bool("allow-live-source")}
	env, err := limited(c)
	if err != nil {
		return err
	}
	out, err := phase(o, env)
	return errors.Join(err, show(c, finished(out)))
}

func runRepair(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if c.Bool("replay") {
		return runReplay(c)
	}
	for _, flag := range join(connectionFlags(), liveFlag()) {
		name := flag.Names()[0]
		if _, inEnvironment := os.LookupEnv(env(name)[0]); c.IsSet(name) && !inEnvironment {
			return usage(fmt.Errorf("--%s goes with --replay only: nothing else that repair does asks a broker", name))
		}
	}
	out, err := migrate.Repair(migrate.RepairOptions{RunDir: c.String("run-dir"), Accept: list(c.String("accept")), Edit: c.String("edit")}, environment(c))
	return errors.Join(err, show(c, viewOf(out)))
}

func runReplay(c *cli.Context) error {
	for _, name := range []string{"accept", "edit"} {
		if c.IsSet(name) {
			return usage(fmt.Errorf("--replay and --%s are both given: decide first, look at repairs.jsonl, then replay", name))
		}
	}
	return runPhase(c, func(o migrate.RunOptions, env migrate.Environment) (view, error) {
		out, err := migrate.Replay(c.Context, o, env)
		return viewOf(out), err
	})
}

func runRehearse(c *cli.Context) error {
	return runPhase(c, func(o migrate.RunOptions, env migrate.Environment) (view, error) {
		out, err := migrate.Rehearse(c.Context, migrate.RehearseOptions{RunOptions: o, Runtimes: c.StringSlice("runtime"), Markers: c.StringSlice("marker")}, env)
		return viewOf(out), err
	})
}

// finished leaves out the evidence of a phase that did not get to its end.
func finished(v view) view {
	switch v := v.(type) {
	case *report.Apply:
		if v.FinishedAt.IsZero() {
			return nil
		}
	case *report.Verify:
		if v.FinishedAt.IsZero() {
			return nil
		}
	case *report.Rehearse:
		if v.FinishedAt.IsZero() {
			return nil
		}
	}
	return v
}

func runMigrate(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	o, err := planOptions(c)
	if err != nil {
		return err
	}
	env, err := limited(c)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		r, err := migrate.Plan(c.Context, o, env)
		if r == nil {
			return err
		}
		return errors.Join(err, showOutcome(c, &migrate.Outcome{Plan: r}))
	}
	out, err := migrate.Migrate(c.Context, o, c.Bool("allow-live-source"), env)
	if out == nil {
		return err
	}
	return errors.Join(err, showOutcome(c, out))
}

// outcome is the one JSON document of several phases; a phase that did not run,
// or did not get to its end, is null.
type outcome struct {
	Schema int            `json:"schema_version"`
	Plan   *report.Report `json:"plan"`
	Apply  *report.Apply  `json:"apply"`
	Verify *report.Verify `json:"verify"`
}

// showOutcome writes what migrate has to say: one document for a script, one
// summary after the other for people.
func showOutcome(c *cli.Context, out *migrate.Outcome) error {
	parts := []view{viewOf(out.Plan), finished(viewOf(out.Apply)), finished(viewOf(out.Verify))}
	if !slices.ContainsFunc(parts, func(v view) bool { return v != nil }) {
		return nil
	}
	if asJSON(c) {
		document := outcome{Schema: report.SchemaVersion}
		document.Plan, _ = parts[0].(*report.Report)
		document.Apply, _ = parts[1].(*report.Apply)
		document.Verify, _ = parts[2].(*report.Verify)
		return report.WriteJSON(c.App.Writer, document)
	}
	var err error
	for _, part := range parts {
		err = errors.Join(err, show(c, part))
	}
	return err
}

func runExplain(c *cli.Context, stdin io.Reader) error {
	keys := c.Args().Slice()
	switch {
	case len(keys) == 0:
		return usage(errors.New("explain needs a key, or - for standard input"))
	case len(keys) == 1 && keys[0] == "-":
		return explainLines(c, stdin)
	}
	for _, key := range keys[1:] {
		// No flag is read behind the first key: it would be explained as a key.
		if strings.HasPrefix(key, "-") {
			return usage(fmt.Errorf("%q stands behind a key; give flags first, and keys that begin with - on standard input", key))
		}
	}
	for _, key := range keys {
		if err := explain(c, []byte(key)); err != nil {
			return err
		}
	}
	return nil
}

// explainLines explains each line of standard input. Only the line feed ends a
// line: whatever else is there, a carriage return too, belongs to the key.
func explainLines(c *cli.Context, stdin io.Reader) error {
	lines := bufio.NewReader(stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read standard input: %w", err)
		}
		line, whole := bytes.CutSuffix(line, []byte{'\n'})
		if !whole && len(line) == 0 {
			return nil
		}
		if err := explain(c, line); err != nil {
			return err
		}
		if !whole {
			return nil
		}
	}
}

func explain(c *cli.Context, key []byte) error {
	partitions, err := count(c, "partitions")
	if err != nil {
		return err
	}
	o := migrate.ExplainOptions{From: c.String("from"), To: c.String("to"), Partitioner: c.String("partitioner"), Partitions: partitions}
	if o.ForRelease04, err = forRelease04(c); err != nil {
		return err
	}
	e, err := migrate.Explain(o, key)
	if err != nil {
		return err
	}
	if asJSON(c) {
		return report.WriteJSON(c.App.Writer, e)
	}
	return e.WriteText(c.App.Writer, style(c))
}

// forRelease04 are the flags that go with --to flink-agents-0.4.
func forRelease04(c *cli.Context) (migrate.ForRelease04, error) {
	parallelism, err := count(c, "max-parallelism")
	if err == nil && c.IsSet("max-parallelism") && parallelism < 1 {
		err = usage(fmt.Errorf("--max-parallelism %d is not positive", parallelism))
	}
	return migrate.ForRelease04{KeyType: c.String("key-type"), MaxParallelism: parallelism, Actions: c.String("actions"), AgentPlan: c.String("agent-plan"),
		OnIncompatible: rewrite.Policy(c.String("on-incompatible-value"))}, err
}

// count is the value of a flag that counts something.
func count(c *cli.Context, flag string) (int32, error) {
	n := c.Int(flag)
	if n > math.MaxInt32 || n < math.MinInt32 {
		return 0, usage(fmt.Errorf("--%s %d is out of range", flag, n))
	}
	return int32(n), nil
}

// onlyExtension refuses flags that an extension would not look at: what was
// decided for the first capture holds for all.
func onlyExtension(c *cli.Context) error {
	for _, flag := range planFlags() {
		name := flag.Names()[0]
		switch name {
		case "source", "target", "run-dir", "align", "max-padding":
			continue
		}
		// A variable of the environment may be there for the first plan.
		_, inEnvironment := os.LookupEnv(env(name)[0])
		if c.IsSet(name) && !inEnvironment {
			return usage(fmt.Errorf("--%s does not go with --extend: an extension keeps what the plan says", name))
		}
	}
	return nil
}

// noArguments refuses words that are no flags: usually a flag's value that
// lost its flag.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return usage(fmt.Errorf("unexpected argument %q", c.Args().First()))
	}
	return nil
}

func connections(c *cli.Context) migrate.Connections {
	return migrate.Connections{
		Source: migrate.Connection{Bootstrap: list(c.String("bootstrap-server")), Properties: c.String("command-config")},
		Target: migrate.Connection{Bootstrap: list(c.String("target-bootstrap-server")), Properties: c.String("target-command-config")},
	}
}

func list(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func planOptions(c *cli.Context) (migrate.PlanOptions, error) {
	partitions, err := count(c, "target-partitions")
	if err != nil {
		return migrate.PlanOptions{}, err
	}
	if c.Bool("extend") {
		if err := onlyExtension(c); err != nil {
			return migrate.PlanOptions{}, err
		}
	}
	o := migrate.PlanOptions{
		Connections: connections(c),
		Source:      c.String("source"), Target: c.String("target"), RunDir: c.String("run-dir"),
		From: c.String("from"), To: c.String("to"), Partitioner: c.String("partitioner"),
		OnUnparseable: rewrite.Policy(c.String("on-unparseable")), QuarantineTopic: c.String("quarantine-topic"), History: rewrite.History(c.String("history")),
		Align: c.String("align"), TargetPartitions: partitions, TargetConfig: map[string]string{},
		Compression: c.String("compression"), Isolation: c.String("isolation-level"),
		Repairs: c.String("repairs"), AllowUnusedRepairs: c.Bool("allow-unused-repairs"), OnCollision: c.String("on-collision"),
		Prune: c.String("prune"), PruneBefore: c.String("prune-before"), Pruned: rewrite.PrunedAs(c.String("pruned")),
		Extend: c.Bool("extend"), MaxPadding: c.Int64("max-padding"),
	}
	if o.ForRelease04, err = forRelease04(c); err != nil {
		return o, err
	}
	for _, setting := range c.StringSlice("target-config") {
		name, value, found := strings.Cut(setting, "=")
		if _, twice := o.TargetConfig[name]; !found || name == "" || twice {
			return o, usage(fmt.Errorf("--target-config %q: want name=value, each name once", setting))
		}
		o.TargetConfig[name] = value
	}
	return o, nil
}

// limited is the environment of a command that has --memory.
func limited(c *cli.Context) (migrate.Environment, error) {
	env := environment(c)
	var err error
	env.Memory, err = migrate.LimitMemory(c.String("memory"))
	return env, err
}

func environment(c *cli.Context) migrate.Environment {
	log := newLog(c)
	return migrate.Environment{Version: "rekey " + c.App.Version, Now: time.Now, Progress: newProgress(c), Logf: log.detail, Warnf: log.warn}
}

// show writes a result to standard output in the form that was asked for.
func show(c *cli.Context, v view) error {
	if v == nil {
		return nil
	}
	if asJSON(c) {
		return report.WriteJSON(c.App.Writer, v)
	}
	return v.WriteSummary(c.App.Writer, style(c))
}

func asJSON(c *cli.Context) bool { return c.String("output") == "json" }

// style fits the text to where it goes: colour only on a terminal, and never
// with NO_COLOR.
func style(c *cli.Context) report.Style {
	s := report.Style{Width: 80}
	file, ok := c.App.Writer.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return s
	}
	s.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		s.Width = min(width, 120)
	}
	return s
}
