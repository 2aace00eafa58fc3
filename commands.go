package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
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
	return []*cli.Command{
		{
			Name:  "plan",
			Usage: "read-only: scan the topic, decide on every key, write a sealed plan and reports",
			UsageText: "rekey plan --bootstrap-server HOST:PORT --source TOPIC --target TOPIC --run-dir DIR [flags]\n\n" +
				"example: rekey plan --bootstrap-server localhost:9092 --source action-state \\\n" +
				"           --target action-state-2 --run-dir ./run",
			Flags: join(connectionFlags(), planFlags(),
				[]cli.Flag{&cli.BoolFlag{Name: "extend", Usage: "add what was appended to the source since to the plan in --run-dir", EnvVars: env("extend")}}, outputFlags()),
			Action: runPlan,
		},
		{
			Name:  "apply",
			Usage: "carry out a plan; resumes by itself after an interruption",
			UsageText: "rekey apply --bootstrap-server HOST:PORT --run-dir DIR [flags]\n\n" +
				"example: rekey apply --bootstrap-server localhost:9092 --run-dir ./run",
			Flags: join(connectionFlags(), runDirFlag(), liveFlag(), outputFlags()),
			Action: func(c *cli.Context) error {
				return runPhase(c, func(o migrate.RunOptions, env migrate.Environment) (view, error) {
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
			Name:  "migrate",
			Usage: "plan, apply and verify in one go, for scripts",
			UsageText: "rekey migrate --bootstrap-server HOST:PORT --source TOPIC --target TOPIC --run-dir DIR [flags]\n\n" +
				"example: rekey migrate --bootstrap-server localhost:9092 --source action-state \\\n" +
				"           --target action-state-2 --run-dir ./run --on-unparseable quarantine",
			Flags: join(connectionFlags(), planFlags(), liveFlag(),
				[]cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "only plan", EnvVars: env("dry-run")}}, outputFlags()),
			Action: runMigrate,
		},
		{
			Name:  "explain",
			Usage: "show how keys parse, what they become, and which partition they land on",
			UsageText: "rekey explain [flags] KEY...   (- reads keys from standard input, one a line)\n\n" +
				"example: rekey explain user_123_0_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448",
			Flags:  join(formatFlags(), []cli.Flag{&cli.IntFlag{Name: "partitions", Value: 1, Usage: "partition `COUNT` of the topic", EnvVars: env("partitions")}}, outputFlags()),
			Action: func(c *cli.Context) error { return runExplain(c, stdin) },
		},
		{
			Name:  "demo",
			Usage: "plan, apply and verify on an embedded broker with a legacy topic; needs nothing installed",
			UsageText: "rekey demo [--run-dir DIR]\n\n" +
				"example: rekey demo --run-dir ./demo-run",
			Flags:  join([]cli.Flag{&cli.StringFlag{Name: "run-dir", Usage: "keep plan and reports in `DIR`", EnvVars: env("run-dir")}}, outputFlags()),
			Action: runDemo,
		},
	}
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
		text("bootstrap-server", "", "brokers of the source, `HOST:PORT` separated by commas"),
		text("command-config", "", "client.properties `FILE` as for Kafka's own tools"),
		text("target-bootstrap-server", "", "brokers of the target, `HOST:PORT`, if it is on another cluster"),
		text("target-command-config", "", "client.properties `FILE` for the target's cluster"),
	}
}

func formatFlags() []cli.Flag {
	defaults := migrate.DefaultPlanOptions()
	return []cli.Flag{
		text("from", defaults.From, "key `FORMAT` of the source: legacy, keygroup-first, keygroup-last"),
		text("to", defaults.To, "key `FORMAT` of the target: escaped, length-prefixed"),
		text("partitioner", defaults.Partitioner, "who chooses the partition: flink-agents, java-default, source"),
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
			text("on-unparseable", string(defaults.OnUnparseable), "what to do with keys that cannot be parsed: fail, quarantine, copy"),
			text("history", string(defaults.History), "records of a key to carry over: all, latest"),
			text("align", defaults.Align, "pad the target so that old recovery markers stay valid: source-end, none"),
			&cli.IntFlag{Name: "target-partitions", Usage: "partition `COUNT` of the target (default: the source's)", EnvVars: env("target-partitions")},
			&cli.StringSliceFlag{Name: "target-config", Usage: "`NAME=VALUE` of a target topic setting; may be repeated", EnvVars: env("target-config")},
			text("compression", "", "`CODEC` of the target's batches: none, gzip, snappy, lz4, zstd (default: the source's)"),
			text("isolation-level", defaults.Isolation, "records of aborted transactions: read_uncommitted copies them, as the job sees them; read_committed leaves them out"),
		})
}

func runDirFlag() []cli.Flag {
	return []cli.Flag{text("run-dir", "", "`DIR` that holds one migration's plan, reports and evidence")}
}

func liveFlag() []cli.Flag {
	return []cli.Flag{&cli.BoolFlag{Name: "allow-live-source", Usage: "accept a source that is still written to", EnvVars: env("allow-live-source")}}
}

func outputFlags() []cli.Flag {
	return []cli.Flag{
		text("output", "text", "`FORM` of the result on standard output: text, json"),
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
	r, err := migrate.Plan(c.Context, o, environment(c))
	return errors.Join(err, show(c, viewOf(r)))
}

func runPhase(c *cli.Context, phase func(migrate.RunOptions, migrate.Environment) (view, error)) error {
	if err := noArguments(c); err != nil {
		return err
	}
	o := migrate.RunOptions{Connections: connections(c), RunDir: c.String("run-dir"), AllowLiveSource: c.Bool("allow-live-source")}
	out, err := phase(o, environment(c))
	return errors.Join(err, show(c, finished(out)))
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
	}
	return v
}

func runMigrate(c *cli.Context) error {
	if c.Bool("dry-run") {
		return runPlan(c)
	}
	if err := noArguments(c); err != nil {
		return err
	}
	o, err := planOptions(c)
	if err != nil {
		return err
	}
	out, err := migrate.Migrate(c.Context, o, c.Bool("allow-live-source"), environment(c))
	if out == nil {
		return err
	}
	for _, part := range []view{viewOf(out.Plan), finished(viewOf(out.Apply)), finished(viewOf(out.Verify))} {
		err = errors.Join(err, show(c, part))
	}
	return err
}

func runExplain(c *cli.Context, stdin io.Reader) error {
	if !c.Args().Present() {
		return usage(errors.New("explain needs a key, or - for standard input"))
	}
	o := migrate.ExplainOptions{From: c.String("from"), To: c.String("to"), Partitioner: c.String("partitioner"), Partitions: int32(c.Int("partitions"))}
	explain := func(key string) error {
		e, err := migrate.Explain(o, []byte(key))
		if err != nil {
			return err
		}
		if c.String("output") == "json" {
			return report.WriteJSON(c.App.Writer, e)
		}
		return e.WriteText(c.App.Writer, style(c))
	}
	if c.NArg() == 1 && c.Args().First() == "-" {
		lines := bufio.NewScanner(stdin)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			if err := explain(lines.Text()); err != nil {
				return err
			}
		}
		return lines.Err()
	}
	for _, key := range c.Args().Slice() {
		if err := explain(key); err != nil {
			return err
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
	o := migrate.PlanOptions{
		Connections: connections(c),
		Source:      c.String("source"), Target: c.String("target"), RunDir: c.String("run-dir"),
		From: c.String("from"), To: c.String("to"), Partitioner: c.String("partitioner"),
		OnUnparseable: rewrite.Policy(c.String("on-unparseable")), History: rewrite.History(c.String("history")),
		Align: c.String("align"), TargetPartitions: int32(c.Int("target-partitions")), TargetConfig: map[string]string{},
		Compression: c.String("compression"), Isolation: c.String("isolation-level"),
		Extend: c.Bool("extend"),
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

func environment(c *cli.Context) migrate.Environment {
	logf := func(string, ...any) {}
	if c.Bool("verbose") {
		logf = func(format string, args ...any) { fmt.Fprintf(c.App.ErrWriter, format+"\n", args...) }
	}
	return migrate.Environment{Version: "rekey " + c.App.Version, Now: time.Now, Progress: newProgress(c), Logf: logf}
}

// show writes a result to standard output in the form that was asked for.
func show(c *cli.Context, v view) error {
	if v == nil {
		return nil
	}
	switch form := c.String("output"); form {
	case "json":
		return report.WriteJSON(c.App.Writer, v)
	case "text":
		return v.WriteSummary(c.App.Writer, style(c))
	default:
		return usage(fmt.Errorf("unknown --output %q; known: text, json", form))
	}
}

// style fits the text to where it goes: colour only on a terminal, and never
// with NO_COLOR.
func style(c *cli.Context) report.Style {
	s := report.Style{Width: 80}
	file, ok := c.App.Writer.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return s
	}
	_, s.Color = os.LookupEnv("NO_COLOR")
	s.Color = !s.Color
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		s.Width = min(width, 120)
	}
	return s
}
