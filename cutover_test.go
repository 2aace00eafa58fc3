package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rekey/fixtures/testcluster"
)

// The commands of docs/cutover.md, in the order in which they stand there, on a
// topic to which the job writes once more before the window. The names in the
// document become those of the test's broker and topics.
func TestCutover(t *testing.T) {
	doc, err := os.ReadFile("docs/cutover.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := shellBlocks(string(doc))
	var script strings.Builder
	script.WriteString("seed $SOURCE job.seed\n")
	sections := map[string]int{}
	for _, b := range blocks {
		if b.section == "In the window" && sections[b.section] == 0 {
			script.WriteString("append $SOURCE more.seed\n")
		}
		sections[b.section]++
		fmt.Fprintf(&script, "\n# %s\n", b.section)
		for _, command := range b.commands {
			fmt.Fprintf(&script, "exits 0 %s --quiet\n", cutoverNames.Replace(command))
			if strings.HasPrefix(command, "rekey rehearse") {
				script.WriteString("stdout 'will see the same [0-9]+ states?'\n")
			}
		}
	}
	for _, section := range []string{"Days before", "Hours before", "In the window", "The exact way"} {
		if sections[section] == 0 {
			t.Errorf("docs/cutover.md has no commands under %q", section)
		}
	}
	file := filepath.Join(t.TempDir(), "cutover.txtar")
	if err := os.WriteFile(file, []byte(script.String()+cutoverFiles), 0o644); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: []string{file},
		Setup: func(e *testscript.Env) error {
			t := e.T().(testing.TB)
			c := testcluster.Start(t)
			e.Setenv("BROKER", c.Bootstrap())
			e.Setenv("SOURCE", c.Topic(t, "source"))
			e.Setenv("TARGET", c.Topic(t, "target"))
			e.Values["cluster"] = &scriptCluster{Cluster: c, t: t}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "seed": seedTopic, "append": appendTopic},
	})
}

// cutoverFiles are the job's topic, what it writes until it is stopped, and the
// markers of its savepoint, which was taken before the last two records.
const cutoverFiles = `
-- job.seed --
partitions 2
config cleanup.policy=compact
* 1700000000000 user_1_0_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448 one
* 1700000000001 user_2_0_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448 two
0 1700000000002 malformed-key three
-- more.seed --
partitions 2
* 1700000000003 user_1_1_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448 four
* 1700000000004 user_2_1_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448 five
* 1700000000005 user_1_2_a2622b55-28e2-3a3c-9bde-7164cf05dbea_caa2da48-5fe7-3ce2-8106-de90c978d448 six
-- savepoint.json --
[{"offsets": {"0": 1, "1": 3}}, {"offsets": {"0": 1, "1": 4}}]
`

// cutoverNames are the names of the document and what they stand for. The
// longer names come first.
var cutoverNames = strings.NewReplacer(
	"kafka-1:9092", "$BROKER",
	"action-state-2", "$TARGET", "action-state-3", "$TARGET-exact", "action-state", "$SOURCE",
)

// shellBlock is a fenced block of commands and the section it stands in.
type shellBlock struct {
	section  string
	commands []string
}

var fence = regexp.MustCompile("^ *```(\\w*)")

// shellBlocks finds the blocks that are marked as sh.
func shellBlocks(doc string) []shellBlock {
	var blocks []shellBlock
	section, inside := "", ""
	for line := range strings.Lines(doc) {
		line = strings.TrimSpace(line)
		switch mark := fence.FindStringSubmatch(line); {
		case mark != nil && inside == "":
			if inside = mark[1]; inside == "sh" {
				blocks = append(blocks, shellBlock{section: section})
			}
		case mark != nil:
			inside = ""
		case inside == "sh" && line != "":
			last := &blocks[len(blocks)-1]
			last.commands = append(last.commands, line)
		case inside == "" && strings.HasPrefix(line, "## "):
			section = strings.TrimPrefix(line, "## ")
		}
	}
	return blocks
}
