package main

import (
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"rekey/migrate"
	"rekey/report"
	"rekey/rewrite"
)

func convertFlags() []cli.Flag {
	// Lines have no partitions.
	formats := slices.DeleteFunc(formatFlags(), func(f cli.Flag) bool { return f.Names()[0] == "partitioner" })
	return append(formats,
		text("lines", migrate.LinesKeys, "`FORM` of the lines: keys, json"),
		text("key-field", "state_key", "`NAME` of the JSON field with the state key"),
		text("agent-key", migrate.AgentKeyKeep, "`WHAT` to put into the agent key: keep, business-key, digest"),
		text("agent-key-field", "agent_key", "`NAME` of the JSON field with the agent key"),
		text("on-unparseable", string(rewrite.PolicyFail), "`POLICY` for such keys: fail, quarantine, copy"),
		text("repairs", "", "repairs `FILE`, as rekey repair writes it"))
}

// runConvert writes lines to standard output, so what there is to say of them
// goes to standard error: as text, or as JSON with --output json.
func runConvert(c *cli.Context, stdin io.Reader) error {
	if err := noArguments(c); err != nil {
		return err
	}
	release04, err := forRelease04(c)
	if err != nil {
		return err
	}
	out, err := migrate.Convert(migrate.ConvertOptions{
		From: c.String("from"), To: c.String("to"), OnUnparseable: rewrite.Policy(c.String("on-unparseable")), Repairs: c.String("repairs"),
		ForRelease04: release04,
		Lines:        c.String("lines"), KeyField: c.String("key-field"), AgentKey: c.String("agent-key"), AgentKeyField: c.String("agent-key-field"),
		RunDir: c.String("run-dir"),
	}, stdin, c.App.Writer, environment(c))
	if out == nil {
		return err
	}
	if asJSON(c) {
		if writeErr := report.WriteJSON(c.App.ErrWriter, out); writeErr != nil {
			return writeErr
		}
		return err
	}
	newLog(c).warn("%d lines read, %d converted, %d copied as they are, %d kept aside, %d dropped; %d have a key that cannot be parsed",
		out.Lines, out.Converted, out.Copied, out.Quarantined, out.Dropped, out.Unparseable)
	return err
}
