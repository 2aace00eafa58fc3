package migrate

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"rekey/keycodec"
	"rekey/report"
	"rekey/rewrite"
)

// Forms of the lines that Convert reads and writes.
const (
	LinesKeys = "keys" // a line is a state key; whatever is in it but the line feed belongs to the key
	LinesJSON = "json" // a line is a JSON object with the state key in a field
)

// What becomes of the agent key of a JSON line.
const (
	AgentKeyKeep     = "keep"
	AgentKeyBusiness = "business-key" // the key's text form, as up to release 0.3
	AgentKeyDigest   = "digest"       // the last field of a key of format flink-agents-0.4
)

// quarantineLinesName is the file with the lines that were kept aside, as they
// were read.
const quarantineLinesName = "quarantine.lines"

// ConvertOptions are the choices of one conversion.
type ConvertOptions struct {
	From, To      string
	OnUnparseable rewrite.Policy
	ForRelease04
	Repairs string // path of a repairs file, or ""

	Lines         string // LinesKeys or LinesJSON
	KeyField      string // of JSON lines
	AgentKey      string // AgentKeyKeep, …
	AgentKeyField string // of JSON lines
	RunDir        string // for unparseable.jsonl and what is kept aside, or ""
}

func (o ConvertOptions) validate() error {
	switch {
	case !slices.Contains([]string{LinesKeys, LinesJSON}, o.Lines):
		return usage(fmt.Sprintf("unknown --lines %q", o.Lines), "known: keys, json")
	case !slices.Contains([]string{AgentKeyKeep, AgentKeyBusiness, AgentKeyDigest}, o.AgentKey):
		return usage(fmt.Sprintf("unknown --agent-key %q", o.AgentKey), "known: keep, business-key, digest")
	case o.AgentKey == AgentKeyDigest && o.To != keycodec.NameFlinkAgents04:
		return usage(fmt.Sprintf("--agent-key digest with --to %s", o.To), "only keys of flink-agents-0.4 have a digest")
	case o.AgentKey != AgentKeyKeep && o.Lines != LinesJSON:
		return usage("--agent-key without --lines json", "a line with nothing but a key has no agent key")
	case o.OnUnparseable == rewrite.PolicyQuarantine && o.RunDir == "":
		return usage("--on-unparseable quarantine without --run-dir", "name a folder for the lines that are kept aside")
	}
	return o.ForRelease04.validate(o.To)
}

// Convert reads lines from in, gives the state key of each its new form, and
// writes them to out in the same order. It decides as a plan does, asks no
// broker, and takes what is not a key as it is. Where the policy is to fail, the
// lines whose key cannot be parsed are left out and the error says so at the end:
// what was written must not be used then.
func Convert(o ConvertOptions, in io.Reader, out io.Writer, env Environment) (*report.Convert, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	plan := DefaultPlanOptions()
	plan.From, plan.To, plan.OnUnparseable, plan.ForRelease04 = o.From, o.To, o.OnUnparseable, o.ForRelease04
	rules, err := plan.rules(1)
	if err != nil {
		return nil, err
	}
	rules.OnIncompatible = "" // a line's value is not looked at: where it stands is not known
	if o.Repairs != "" {
		set, err := readRepairsFile(o.Repairs, rules)
		if err != nil {
			return nil, err
		}
		set.into(&rules)
	}
	c := &converter{options: o, rules: rules, decider: rewrite.NewDecider(rules), out: bufio.NewWriterSize(out, 1<<16),
		seed: maphash.MakeSeed(), aside: bufio.NewWriter(io.Discard), targets: map[uint64]convertedFrom{}, bad: map[string]*badKey{},
		result: &report.Convert{Schema: report.SchemaVersion, Tool: env.Version, From: o.From, To: o.To}}
	convert := func() error {
		env.Progress.Phase("convert lines", -1)
		defer env.Progress.Done()
		return c.run(in, env)
	}
	if dir := env.runDir(o.RunDir); dir.folder == "" {
		err = convert()
	} else if err = dir.create(); err == nil {
		// The file gets its name when it is whole.
		err = dir.write(quarantineLinesName, func(w io.Writer) error {
			c.aside = bufio.NewWriter(w)
			return cmp.Or(convert(), c.aside.Flush())
		})
	}
	if flushErr := c.out.Flush(); err == nil && flushErr != nil {
		err = fmt.Errorf("write the result: %w", flushErr)
	}
	if err != nil {
		return nil, err
	}
	return c.result, c.finish(env)
}

type converter struct {
	options ConvertOptions
	rules   rewrite.Rules
	decider *rewrite.Decider
	out     *bufio.Writer
	result  *report.Convert

	seed    maphash.Seed
	targets map[uint64]convertedFrom // by hash of the target key
	bad     map[string]*badKey
	aside   *bufio.Writer
	line    int64
}

// badKey is a key that cannot be parsed; its offsets are line numbers from 0.
type badKey struct {
	key []byte
	badKeyStats
}

// convertedFrom is where a target key came from.
type convertedFrom struct {
	source uint64 // hash of the source key
	line   int64
}

func (c *converter) run(in io.Reader, env Environment) error {
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read standard input: %w", err)
		}
		line, whole := bytes.CutSuffix(line, []byte{'\n'})
		if !whole && len(line) == 0 {
			return nil
		}
		c.line++
		if err := c.convert(line); err != nil {
			return err
		}
		env.Progress.Add(1)
		if !whole {
			return nil
		}
	}
}

// convert takes one line.
func (c *converter) convert(line []byte) error {
	o := c.options
	key, at, agentAt := line, span{}, span{}
	if o.Lines == LinesJSON {
		var err error
		if at, agentAt, err = fields(line, o.KeyField, o.AgentKeyField); err != nil {
			return &Failure{Kind: ErrUsage, What: fmt.Sprintf("line %d is not what --lines json takes", c.line), Cause: err,
				Do: "each line must be one JSON object with a field " + o.KeyField}
		}
		if key, err = stringOf(line[at.from:at.to]); err != nil {
			return &Failure{Kind: ErrUsage, What: fmt.Sprintf("line %d is not what --lines json takes", c.line), Cause: fmt.Errorf("field %s: %w", o.KeyField, err),
				Do: "the field must hold a text or null"}
		}
	}
	decision, err := c.decider.Decide(&rewrite.Record{Offset: c.line - 1, Key: key, Value: line}, 0)
	if err != nil {
		return err
	}
	c.result.Lines++
	if decision.Problem != nil && decision.Reason != rewrite.Repaired {
		c.result.Unparseable++
	}
	if decision.Problem != nil {
		stats := c.bad[mapKey(key)]
		if stats == nil {
			stats = &badKey{key: bytes.Clone(key), badKeyStats: badKeyStats{firstOffset: c.line - 1}}
			c.bad[mapKey(key)] = stats
		}
		stats.records++
		stats.lastOffset = c.line - 1
	}
	switch decision.Action {
	case rewrite.Write:
		c.result.Converted++
	case rewrite.Copy:
		c.result.Copied++
		decision.Key = key
	case rewrite.Quarantine:
		c.result.Quarantined++
		c.aside.Write(line)
		c.aside.WriteByte('\n')
		return nil
	case rewrite.Drop:
		c.result.Dropped++
		return nil
	default:
		if decision.Problem == nil {
			return fmt.Errorf("line %d: nothing converts a record that is to %s (%s)", c.line, decision.Action, decision.Reason)
		}
		return nil // the policy is to fail, and the end says so
	}
	if err := c.meet(key, decision.Key); err != nil {
		return err
	}
	return c.write(line, at, agentAt, &decision)
}

// meet refuses two source keys with one target key. The formats by themselves
// never let two meet; what was copied, repaired or renamed may.
func (c *converter) meet(source, target []byte) error {
	if o := c.options; o.OnUnparseable != rewrite.PolicyCopy && o.Repairs == "" && o.To != keycodec.NameFlinkAgents04 {
		return nil
	}
	now := convertedFrom{source: maphash.Bytes(c.seed, source), line: c.line}
	id := maphash.Bytes(c.seed, target)
	earlier, known := c.targets[id]
	if !known {
		c.targets[id] = now
		return nil
	}
	if earlier.source == now.source {
		return nil
	}
	return &Failure{Kind: ErrPreflight, What: fmt.Sprintf("the keys of lines %d and %d both become %s", earlier.line, c.line, report.Shorten(report.Printable(target), 60)),
		Do: "repair one of them otherwise, or drop it: see --repairs. What was written so far must not be used"}
}

func (c *converter) write(line []byte, at, agentAt span, decision *rewrite.Decision) error {
	if c.options.Lines == LinesKeys {
		c.out.Write(decision.Key)
		return c.out.WriteByte('\n')
	}
	type change struct {
		span
		text []byte
	}
	changes := []change{{at, decision.Key}}
	if decision.Parsed != nil && agentAt.to > 0 {
		switch c.options.AgentKey {
		case AgentKeyBusiness:
			changes = append(changes, change{agentAt, decision.Parsed.BusinessKey})
		case AgentKeyDigest:
			changes = append(changes, change{agentAt, decision.Key[bytes.LastIndexByte(decision.Key, '_')+1:]})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return a.from - b.from })
	done := 0
	for _, change := range changes {
		c.out.Write(line[done:change.from])
		if err := writeText(c.out, change.text); err != nil {
			return err
		}
		done = change.to
	}
	c.out.Write(line[done:])
	return c.out.WriteByte('\n')
}

// finish writes the files of the run directory and gives the verdict.
func (c *converter) finish(env Environment) error {
	var entries []report.BadKey
	for _, bad := range c.bad {
		entry, err := badKeyEntry(&c.rules, bad.key, &bad.badKeyStats)
		if err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, func(a, b report.BadKey) int { return int(a.First.Offset - b.First.Offset) })
	if dir := env.runDir(c.options.RunDir); dir.folder != "" {
		err := dir.write(unparseableFileName, func(w io.Writer) error {
			for _, entry := range entries {
				if err := report.WriteBadKey(w, entry); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if c.result.Quarantined > 0 && c.options.RunDir == "" {
		return &Failure{Kind: ErrUnparseable, What: fmt.Sprintf("%d lines have a null key, which no policy copies", c.result.Quarantined),
			Do: "name a --run-dir for these lines, or drop them: see --repairs"}
	}
	for i, entry := range entries {
		if i == 20 && c.options.RunDir == "" {
			env.warn("and %d other keys that cannot be parsed; --run-dir DIR lists all", len(entries)-i)
			break
		}
		if c.options.RunDir == "" {
			env.warn("line %d: %s: %s", entry.First.Offset+1, report.Shorten(entry.Key, 60), entry.Reason)
		}
	}
	if c.options.OnUnparseable == rewrite.PolicyFail && c.result.Unparseable > 0 {
		return &Failure{Kind: ErrUnparseable, What: fmt.Sprintf("%d lines have a key that cannot be parsed, and the policy is to fail", c.result.Unparseable),
			Do: "what was written lacks them and must not be used. See unparseable.jsonl in --run-dir; then decide with --repairs or --on-unparseable"}
	}
	return nil
}

// span is a part of a line; to is 0 where there is none.
type span struct{ from, to int }

// fields finds the values of two fields of a JSON object.
func fields(line []byte, key, agent string) (at, agentAt span, err error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	first, err := decoder.Token()
	if err != nil {
		return at, agentAt, err
	}
	if first != json.Delim('{') {
		return at, agentAt, errors.New("no JSON object")
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return at, agentAt, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return at, agentAt, err
		}
		end := int(decoder.InputOffset())
		found := span{end - len(value), end}
		var into *span
		switch name {
		case key:
			into = &at
		case agent:
			into = &agentAt
		default:
			continue
		}
		if into.to > 0 {
			return at, agentAt, fmt.Errorf("field %s stands there twice", name)
		}
		*into = found
	}
	if _, err := decoder.Token(); err != nil {
		return at, agentAt, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return at, agentAt, errors.New("something follows the JSON object")
	}
	if at.to == 0 {
		return at, agentAt, fmt.Errorf("no field %s", key)
	}
	return at, agentAt, nil
}

// stringOf is a text of JSON, nil for null. What JSON cannot mean, half a
// surrogate pair, is an error: the library would put another character there.
func stringOf(raw []byte) ([]byte, error) {
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, errors.New("no text")
	}
	if text == nil {
		return nil, nil
	}
	const replaced = string(utf8.RuneError)
	written := strings.Count(string(raw), replaced) + strings.Count(strings.ToLower(string(raw)), `\ufffd`)
	if !utf8.Valid(raw) || strings.Count(*text, replaced) > written {
		return nil, errors.New("a text that is not valid Unicode")
	}
	return []byte(*text), nil
}

// writeText writes a text of JSON with nothing escaped that need not be. Bytes
// that are not UTF-8 cannot stand in JSON.
func writeText(out io.Writer, text []byte) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("the key %s cannot stand in JSON", base64.StdEncoding.EncodeToString(text))
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(string(text)); err != nil {
		return err
	}
	_, err := out.Write(bytes.TrimSuffix(b.Bytes(), []byte{'\n'}))
	return err
}
