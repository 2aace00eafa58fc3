package migrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// DefaultMaxParallelism is Flink's own, for jobs that never set one.
const DefaultMaxParallelism = 128

// ForRelease04 are the choices that the target format flink-agents-0.4 needs and
// no other takes. A topic does not hold them: key types share texts, and the
// release names actions otherwise than those before it.
type ForRelease04 struct {
	KeyType        string
	MaxParallelism int32  // 0: DefaultMaxParallelism
	Actions        string // path of a file with the names of old action UUIDs, or ""
	AgentPlan      string // path of the JSON of an agent plan, or ""
	OnIncompatible rewrite.Policy

	names actionNames // of a plan, in place of the files
}

// validate refuses what does not go with the target format.
func (o ForRelease04) validate(to string) error {
	if to == keycodec.NameFlinkAgents04 {
		return nil
	}
	for _, option := range []struct {
		flag  string
		given bool
	}{
		{"--key-type", o.KeyType != ""}, {"--max-parallelism", o.MaxParallelism != 0}, {"--actions", o.Actions != ""},
		{"--agent-plan", o.AgentPlan != ""}, {"--on-incompatible-value", o.OnIncompatible != ""},
	} {
		if option.given {
			return usage(fmt.Sprintf("%s with --to %s", option.flag, to), "it goes with --to flink-agents-0.4 alone: leave it out")
		}
	}
	return nil
}

// target is the target format.
func (o PlanOptions) target() (keycodec.Format, error) {
	if o.To != keycodec.NameFlinkAgents04 {
		to, err := keycodec.Lookup(o.To)
		if err != nil {
			return nil, usage(err.Error(), "")
		}
		return to, nil
	}
	if o.KeyType == "" {
		return nil, usage("--key-type is missing", "name the type of the job's keys: "+keyTypeNames())
	}
	if _, err := keycodec.ParseKeyType(o.KeyType); err != nil {
		return nil, usage(fmt.Sprintf("unknown --key-type %q", o.KeyType), "known: "+keyTypeNames())
	}
	to, err := keycodec.NewFlinkAgents04(keycodec.KeyType(o.KeyType), cmp.Or(o.MaxParallelism, DefaultMaxParallelism))
	if err != nil {
		return nil, usage(fmt.Sprintf("--max-parallelism %d is out of range", o.MaxParallelism),
			fmt.Sprintf("give the job's max parallelism, 1 to %d; it is %d unless somebody set it", keycodec.MaxMaxParallelism, DefaultMaxParallelism))
	}
	return to, nil
}

func keyTypeNames() string {
	var names []string
	for _, t := range keycodec.KeyTypes() {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

// rules04 adds what only release 0.4 demands.
func (o PlanOptions) rules04(rules *rewrite.Rules) error {
	if released := keycodec.PartitionerNames()[0]; o.Partitioner != released {
		return usage(fmt.Sprintf("--partitioner %s with --to %s", o.Partitioner, o.To), "release 0.4 places its keys itself: leave --partitioner out, for "+released)
	}
	names, err := o.actionNames()
	if err != nil {
		return err
	}
	rules.Actions = names.uuids()
	rules.OnIncompatible = cmp.Or(o.OnIncompatible, rewrite.PolicyFail)
	return nil
}

// planRelease04 is what a plan holds of ForRelease04.
type planRelease04 struct {
	KeyType        string         `json:"key_type"`
	MaxParallelism int32          `json:"max_parallelism"`
	OnIncompatible rewrite.Policy `json:"on_incompatible_value"`
	Actions        actionNames    `json:"actions"`
}

// planned is what a plan holds of the options; nil for another target format.
func (o PlanOptions) planned04() (*planRelease04, error) {
	if o.To != keycodec.NameFlinkAgents04 {
		return nil, nil
	}
	names, err := o.actionNames()
	return &planRelease04{KeyType: o.KeyType, MaxParallelism: cmp.Or(o.MaxParallelism, DefaultMaxParallelism),
		OnIncompatible: cmp.Or(o.OnIncompatible, rewrite.PolicyFail), Actions: names}, err
}

// flags are those of a plan with the same choices.
func (p *planRelease04) flags() string {
	if p == nil {
		return ""
	}
	line := fmt.Sprintf(" --key-type %s --max-parallelism %d", p.KeyType, p.MaxParallelism)
	if p.OnIncompatible != rewrite.PolicyFail {
		line += " --on-incompatible-value " + string(p.OnIncompatible)
	}
	if len(p.Actions) > 0 {
		line += " --actions ACTIONS-FILE"
	}
	return line
}

// options are those that a plan was made with.
func (p *planRelease04) options() ForRelease04 {
	if p == nil {
		return ForRelease04{}
	}
	return ForRelease04{KeyType: p.KeyType, MaxParallelism: p.MaxParallelism, OnIncompatible: p.OnIncompatible, names: p.Actions}
}

// difference names the first flag in which other options differ, or "".
func (p *planRelease04) difference(o *planRelease04) string {
	switch {
	case p == nil || o == nil:
		return "" // the target format differs
	case p.KeyType != o.KeyType:
		return "--key-type"
	case p.MaxParallelism != o.MaxParallelism:
		return "--max-parallelism"
	case p.OnIncompatible != o.OnIncompatible:
		return "--on-incompatible-value"
	case !maps.Equal(p.Actions, o.Actions):
		return "--actions or --agent-plan"
	}
	return ""
}

// actionNames are the names of old action UUIDs.
type actionNames map[string]string

// uuids are the action UUIDs of release 0.4 by those of the releases before.
func (n actionNames) uuids() map[uuid.UUID]uuid.UUID {
	named := make(map[uuid.UUID]uuid.UUID, len(n))
	for old, name := range n {
		named[uuid.MustParse(old)] = keycodec.NameUUID([]byte(name))
	}
	return named
}

// actionNames reads the files that name actions. What both of them name must
// have the same name.
func (o ForRelease04) actionNames() (actionNames, error) {
	if o.names != nil {
		return o.names, o.names.check()
	}
	names := actionNames{}
	if o.AgentPlan != "" {
		planned, err := readAgentPlan(o.AgentPlan)
		if err != nil {
			return nil, &Failure{Kind: ErrUsage, What: "--agent-plan " + o.AgentPlan, Cause: err, Do: "give the JSON of the old job's agent plan, with the Python actions in it"}
		}
		names = planned
	}
	if o.Actions == "" {
		return names, nil
	}
	given, err := readActionNames(o.Actions)
	if err != nil {
		return nil, &Failure{Kind: ErrUsage, What: "--actions " + o.Actions, Cause: err,
			Do: fmt.Sprintf("fill in %s, which plan writes into the run directory: a JSON object of old action UUIDs, each with the action's name", actionsTemplateName)}
	}
	for old, name := range given {
		if planned, both := names[old]; both && planned != name {
			return nil, usage(fmt.Sprintf("action %s is %q in --actions and %q in --agent-plan", old, name, planned), "correct the one that is wrong")
		}
		names[old] = name
	}
	return names, nil
}

func readActionNames(path string) (actionNames, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := refuseDuplicateFields(content); err != nil {
		return nil, err
	}
	var names actionNames
	if err := json.Unmarshal(content, &names); err != nil {
		return nil, err
	}
	return names, names.check()
}

// check demands UUIDs as they stand in keys, and names.
func (n actionNames) check() error {
	for _, old := range slices.Sorted(maps.Keys(n)) {
		parsed, err := uuid.Parse(old)
		switch {
		case err != nil || parsed.String() != old:
			return fmt.Errorf("%s is no UUID of 36 characters of lower-case hex and dashes", report.Printable([]byte(old)))
		case n[old] == "":
			return fmt.Errorf("the action %s has no name: fill it in, or delete the line if nobody knows it", old)
		}
	}
	return nil
}

// readAgentPlan derives the old UUIDs of the Python actions of an agent plan.
//
// Releases 0.2 and 0.3 named an action by Objects.hash(name, function, event
// types), as a decimal text. The hash of a Python function is one of two texts,
// module and qualified name, so it can be had again. That of a Java function
// takes in classes, whose hash is another one in every JVM run.
func readAgentPlan(path string) (actionNames, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var plan struct {
		Actions map[string]struct {
			Name string `json:"name"`
			Exec struct {
				Type      string `json:"func_type"`
				Module    string `json:"module"`
				Qualified string `json:"qualname"`
			} `json:"exec"`
			Events     []string `json:"listen_event_types"`
			Conditions []string `json:"trigger_conditions"` // what development snapshots call the event types
		} `json:"actions"`
	}
	if err := json.NewDecoder(bytes.NewReader(content)).Decode(&plan); err != nil {
		return nil, err
	}
	names := actionNames{}
	for name, action := range plan.Actions {
		if action.Exec.Type != "PythonFunction" {
			continue
		}
		events := action.Events
		if events == nil {
			events = action.Conditions
		}
		name = cmp.Or(action.Name, name)
		names[oldPythonAction(name, action.Exec.Module, action.Exec.Qualified, events)] = name
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("it has no Python action among its %d actions", len(plan.Actions))
	}
	return names, nil
}

// oldPythonAction is the UUID of a Python action in releases 0.2 and 0.3.
func oldPythonAction(name, module, qualified string, events []string) string {
	var types []int32
	for _, event := range events {
		types = append(types, javaHashOf(event))
	}
	function := javaHashAll(javaHashOf(module), javaHashOf(qualified))
	action := javaHashAll(javaHashOf(name), function, javaHashAll(types...))
	return keycodec.NameUUID([]byte(fmt.Sprint(action))).String()
}

func javaHashOf(text string) int32 { return keycodec.JavaHash([]byte(text)) }

// javaHashAll is Objects.hash of Java, and List.hashCode, over hash codes.
func javaHashAll(codes ...int32) int32 {
	hash := int32(1)
	for _, code := range codes {
		hash = 31*hash + code
	}
	return hash
}
