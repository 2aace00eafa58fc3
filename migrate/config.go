package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"rekey/keycodec"
	"rekey/rewrite"
)

// Connection says how to reach a cluster.
type Connection struct {
	Bootstrap  []string // host:port
	Properties string   // path of a client.properties file, or ""
	flag       string   // of Properties, for errors; "" is --command-config
}

// Connections are those of both sides. A Target without Bootstrap is the
// source's cluster.
type Connections struct {
	Source, Target Connection
}

// target is the connection of the target topic.
func (c Connections) target() Connection {
	if len(c.Target.Bootstrap) == 0 {
		return c.Source
	}
	target := c.Target
	target.flag = "--target-command-config"
	return target
}

func (c Connections) validate() error {
	if len(c.Source.Bootstrap) == 0 {
		return usage("--bootstrap-server is missing", "name at least one broker: --bootstrap-server host:9092")
	}
	if len(c.Target.Bootstrap) == 0 && c.Target.Properties != "" {
		return usage("--target-command-config without --target-bootstrap-server", "give both for a target on another cluster, or neither")
	}
	return nil
}

// Alignment values of --align.
const (
	AlignSourceEnd = "source-end" // pad each target partition to the source's end
	AlignNone      = "none"
	alignMarker    = "marker" // in a plan: as far as the marker file said that was given instead
)

// PlanOptions are the choices of one plan.
type PlanOptions struct {
	Connections
	Source, Target string // topics
	RunDir         string
	From, To       string // names of key formats
	Partitioner    string
	OnUnparseable  rewrite.Policy
	// QuarantineTopic takes quarantined records instead of a file of the run
	// directory; "" for the file.
	QuarantineTopic string
	History         rewrite.History
	ForRelease04

	Repairs            string // path of a repairs file, or ""
	AllowUnusedRepairs bool   // accept repairs of keys that are not in the topic
	OnCollision        string // OnCollisionFail or OnCollisionLatest
	Prune              string // path of a prune list, or ""
	PruneBefore        string // path of a marker file, or ""
	Pruned             rewrite.PrunedAs

	Align            string            // AlignSourceEnd, AlignNone or the path of a marker file
	MaxPadding       int64             // most padding records that apply may write; 0: no limit
	TargetPartitions int32             // 0: as many as the source has
	TargetConfig     map[string]string // settings of the target topic that override the source's
	Compression      string            // a codec, or "" for the one that the source's batches use
	Isolation        string            // IsolationUncommitted or IsolationCommitted
	Extend           bool              // capture the new end of an existing plan instead of making one
}

// Isolation levels, named as in Kafka.
const (
	IsolationUncommitted = "read_uncommitted" // what the running job reads: aborted records included
	IsolationCommitted   = "read_committed"
)

// DefaultPlanOptions are the defaults of the command line.
func DefaultPlanOptions() PlanOptions {
	return PlanOptions{
		From: "legacy", To: "escaped", Partitioner: "flink-agents",
		OnUnparseable: rewrite.PolicyFail, History: rewrite.HistoryAll,
		OnCollision: OnCollisionFail, Align: AlignSourceEnd, Isolation: IsolationUncommitted,
	}
}

// Validate reports the first flag that is missing, unknown or in conflict with
// another. Conflicts are errors; no flag silently wins over another.
func (o PlanOptions) Validate() error {
	if err := o.Connections.validate(); err != nil {
		return err
	}
	switch {
	case o.RunDir == "":
		return usage("--run-dir is missing", "name a new folder for this migration: --run-dir ./run")
	case o.Extend:
		return nil // the plan has all the rest
	case o.Source == "":
		return usage("--source is missing", "name the topic to read")
	case o.Target == "":
		return usage("--target is missing", "name the topic to write; it must not exist yet or be empty")
	case o.Source == o.Target && len(o.Connections.Target.Bootstrap) == 0:
		return usage(fmt.Sprintf("source and target are the same topic, %s", o.Source), "rekey never writes to the source: name a new topic with --target")
	case o.TargetPartitions < 0:
		return usage(fmt.Sprintf("--target-partitions %d is negative", o.TargetPartitions), "leave it out to have as many as the source")
	}
	if err := o.ForRelease04.validate(o.To); err != nil {
		return err
	}
	if _, err := o.rules(max(1, o.TargetPartitions)); err != nil {
		return err
	}
	if _, err := o.alignment(); err != nil {
		return err
	}
	if err := cmp.Or(o.validateRules(), o.validateQuarantineTopic()); err != nil {
		return err
	}
	if o.MaxPadding < 0 {
		return usage(fmt.Sprintf("--max-padding %d is negative", o.MaxPadding), "leave it out for no limit")
	}
	if o.Compression != "" {
		if _, err := codecByName(o.Compression); err != nil {
			return usage(err.Error(), "leave --compression out to have the codec of the source's batches")
		}
	}
	if !slices.Contains([]string{IsolationUncommitted, IsolationCommitted}, o.Isolation) {
		return usage(fmt.Sprintf("unknown --isolation-level %q", o.Isolation), "known: read_uncommitted, read_committed")
	}
	return nil
}

// validateRules looks at the files of rules, before anything is connected to.
func (o PlanOptions) validateRules() error {
	prunes := o.Prune != "" || o.PruneBefore != ""
	switch {
	case !slices.Contains([]string{OnCollisionFail, OnCollisionLatest}, o.OnCollision):
		return usage(fmt.Sprintf("unknown --on-collision %q", o.OnCollision), "known: fail, latest")
	case o.Pruned != "" && !prunes:
		return usage("--pruned without --prune or --prune-before", "nothing is pruned unless a rule says what: give one, or leave --pruned out")
	case o.AllowUnusedRepairs && o.Repairs == "":
		return usage("--allow-unused-repairs without --repairs", "leave it out, or name the repairs file")
	}
	if o.Repairs != "" {
		rules, err := o.rules(max(1, o.TargetPartitions))
		if err != nil {
			return err
		}
		if _, err := readRepairsFile(o.Repairs, rules); err != nil {
			return err
		}
	}
	if o.Prune != "" {
		if _, err := readPruneList(o.Prune); err != nil {
			return err
		}
	}
	if o.PruneBefore != "" {
		if _, err := readMarkers(o.PruneBefore); err != nil {
			return err
		}
	}
	return nil
}

// alignment is how the target is aligned, as a plan holds it: the path of a
// marker file becomes "marker".
func (o PlanOptions) alignment() (string, error) {
	if o.Align == AlignSourceEnd || o.Align == AlignNone {
		return o.Align, nil
	}
	if _, err := readMarkers(o.Align); err != nil {
		return "", usage(fmt.Sprintf("--align %q is neither source-end nor none, nor a marker file: %v", o.Align, err), Advice(err))
	}
	return alignMarker, nil
}

// rules turns the names of the options into the rules of every decision.
func (o PlanOptions) rules(targetPartitions int32) (rewrite.Rules, error) {
	if !slices.Contains(keycodec.SourceNames(), o.From) {
		return rewrite.Rules{}, usage(fmt.Sprintf("unknown --from %q", o.From), "known: "+strings.Join(keycodec.SourceNames(), ", "))
	}
	if !slices.Contains(keycodec.TargetNames(), o.To) {
		return rewrite.Rules{}, usage(fmt.Sprintf("unknown --to %q", o.To), "known: "+strings.Join(keycodec.TargetNames(), ", "))
	}
	from, err := keycodec.Lookup(o.From)
	if err != nil {
		return rewrite.Rules{}, usage(err.Error(), "")
	}
	to, err := o.target()
	if err != nil {
		return rewrite.Rules{}, err
	}
	partitioner, err := keycodec.LookupPartitioner(o.Partitioner)
	if err != nil {
		return rewrite.Rules{}, usage(err.Error(), "known: "+strings.Join(keycodec.PartitionerNames(), ", "))
	}
	rules := rewrite.Rules{
		From: from, To: to, Partitioner: partitioner, TargetPartitions: targetPartitions,
		OnUnparseable: o.OnUnparseable, History: o.History, Pruned: o.Pruned,
	}
	if o.To == keycodec.NameFlinkAgents04 {
		if err := o.rules04(&rules); err != nil {
			return rewrite.Rules{}, err
		}
	}
	if err := rules.Validate(); err != nil {
		return rewrite.Rules{}, usage(err.Error(), "rekey plan --help lists what each flag takes")
	}
	return rules, nil
}

// RunOptions are those of the phases that follow a plan.
type RunOptions struct {
	Connections
	RunDir string
	// AllowLiveSource accepts a source that is still written to: only what
	// lay before the captured end is copied and compared.
	AllowLiveSource bool
	// Shard is "i/n" for an apply of the source partitions p with p % n == i.
	Shard string
}

// Validate reports the first flag that is missing or wrong.
func (o RunOptions) Validate() error {
	if err := o.Connections.validate(); err != nil {
		return err
	}
	if o.RunDir == "" {
		return usage("--run-dir is missing", "name the folder that plan wrote")
	}
	_, err := o.division()
	return err
}

// Environment is what a phase needs besides its options.
type Environment struct {
	Version  string                           // of the tool, for reports
	Now      func() time.Time                 // the clock
	Progress Progress                         // never nil; NoProgress for none
	Logf     func(format string, args ...any) // details for whoever asked for them
	Warnf    func(format string, args ...any) // what everybody should see; nil: Logf
	// TransactionPatience is how long plan waits for a transaction that is open
	// on the source; 0 means half a minute.
	TransactionPatience time.Duration
	// Memory is what LimitMemory gave: what a phase may take, in bytes. 0: as
	// much as usual topics need, and more where tables of keys need it.
	Memory int64
	// Patience is how long a request may fail for reasons that pass by
	// themselves; 0 means two minutes.
	Patience time.Duration

	files fileSystem // nil: the operating system's
}

func (e Environment) warn(format string, args ...any) {
	if e.Warnf != nil {
		e.Warnf(format, args...)
		return
	}
	e.Logf(format, args...)
}

func usage(what, do string) error {
	return &Failure{Kind: ErrUsage, What: what, Do: do}
}
