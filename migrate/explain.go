package migrate

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// ExplainOptions are the choices that an explanation rests on.
type ExplainOptions struct {
	From, To    string
	Partitioner string
	Partitions  int32 // of both topics
	ForRelease04
}

// Explain says how one state key parses, what it becomes, and which partition
// it lands on. It asks no broker. A nil key is the null key.
func Explain(o ExplainOptions, key []byte) (*report.Explanation, error) {
	if o.Partitions < 1 {
		return nil, usage(fmt.Sprintf("--partitions %d", o.Partitions), "give the partition count of the topic, at least 1")
	}
	plan := DefaultPlanOptions()
	plan.From, plan.To, plan.Partitioner, plan.ForRelease04 = o.From, o.To, o.Partitioner, o.ForRelease04
	if err := o.validate(o.To); err != nil {
		return nil, err
	}
	rules, err := plan.rules(o.Partitions)
	if err != nil {
		return nil, err
	}
	released, err := keycodec.LookupPartitioner("flink-agents")
	if err != nil {
		return nil, err
	}
	e := &report.Explanation{Schema: report.SchemaVersion, Key: report.Printable(key), KeyBase64: base64OrNull(key),
		From: o.From, To: o.To, Partitions: o.Partitions, Traits: []string{}}
	var parsed keycodec.Key
	if o.To == keycodec.NameFlinkAgents04 && o.Actions == "" && o.AgentPlan == "" {
		rules.Actions = nil // a key is explained all the same, with the action as it is
		e.ActionUnnamed = true
	}
	encoded, err := rules.Translate(nil, &parsed, key)
	if err != nil {
		problem, ok := errors.AsType[*keycodec.ParseError](err)
		if !ok {
			return nil, err
		}
		e.Reason, e.Field, e.Byte, e.Detail = string(problem.Reason), problem.Field, problem.Offset, problem.Detail
		e.Meaning = report.Meaning(e.Reason)
		e.Suggestion = suggestion(&rules, key)
		return e, nil
	}
	if err := rules.From.Parse(&parsed, key); err != nil {
		return nil, err
	}
	e.Parses = true
	e.BusinessKey = report.Printable(parsed.BusinessKey)
	e.BusinessKeyBase64 = base64.StdEncoding.EncodeToString(parsed.BusinessKey)
	e.Sequence, e.EventUUID, e.ActionUUID = parsed.Sequence, parsed.Event.String(), parsed.Action.String()
	e.Traits = parsed.Traits().Names()
	if !keycodec.RuntimeRefuses(key) {
		before := released.Partition(rules.From, key, &parsed, 0, o.Partitions)
		e.Before = &before
	}
	e.NewKey, e.NewKeyBase64 = report.Printable(encoded), base64.StdEncoding.EncodeToString(encoded)
	if e.FlinkKey, err = o.flinkKey(rules.To, encoded, parsed.BusinessKey); err != nil {
		return nil, err
	}
	if o.Partitioner != "source" {
		after := rules.Partitioner.Partition(rules.To, encoded, &parsed, 0, o.Partitions)
		e.After = &after
	}
	return e, nil
}

// flinkKey is what Flink makes of a business key; nil for another target format
// than that of release 0.4.
func (o ForRelease04) flinkKey(to keycodec.Format, encoded, businessKey []byte) (*report.FlinkKey, error) {
	if to.Name() != keycodec.NameFlinkAgents04 {
		return nil, nil
	}
	serialized, hash, err := keycodec.KeyType(o.KeyType).Serialize(nil, businessKey)
	if err != nil {
		return nil, err
	}
	var key keycodec.Key
	err = to.Parse(&key, encoded)
	return &report.FlinkKey{Type: o.KeyType, Serialized: hex.EncodeToString(serialized), HashCode: hash, KeyGroup: key.KeyGroup, Digest: string(key.Digest)}, err
}

// suggestion is the repair that the cause of an unparseable key makes likely,
// or nil: there is none for a key that is whole in the source's format, and none
// that the target could not take.
func suggestion(rules *rewrite.Rules, key []byte) *report.Suggestion {
	if rules.From.Parse(new(keycodec.Key), key) == nil {
		return nil
	}
	s, found := keycodec.Suggest(rules.From, key)
	if !found {
		return nil
	}
	target := s.Repaired
	if err := nameAction(rules, &target); err != nil {
		return nil
	}
	if _, err := rules.To.Append(nil, &target); err != nil {
		return nil
	}
	return &report.Suggestion{Cause: s.Cause, Text: s.Text, BusinessKey: string(s.Repaired.BusinessKey), Sequence: s.Repaired.Sequence,
		EventUUID: s.Repaired.Event.String(), ActionUUID: s.Repaired.Action.String()}
}
