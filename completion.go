package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rekey/keycodec"
	"rekey/migrate"
)

// withDocs adds the commands that describe the others: shell completions and the
// man page, both made from the definitions of commands and flags.
func withDocs(list []*cli.Command) []*cli.Command {
	all := slices.Clone(list)
	shells := map[string]func([]*cli.Command) string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	return append(all,
		&cli.Command{
			Name:  "completion",
			Usage: "print completions for a shell: bash, zsh or fish",
			UsageText: "rekey completion bash|zsh|fish\n\n" +
				"example: rekey completion bash > /etc/bash_completion.d/rekey",
			Action: func(c *cli.Context) error {
				script, known := shells[c.Args().First()]
				if !known || c.NArg() != 1 {
					return usage(errors.New("completion needs the name of a shell: bash, zsh or fish"))
				}
				_, err := fmt.Fprint(c.App.Writer, script(all))
				return err
			},
			OnUsageError: usageError, HideHelpCommand: true, CustomHelpTemplate: shortHelp,
		},
		&cli.Command{
			Name:      "man",
			Usage:     "print the man page",
			UsageText: "rekey man\n\nexample: rekey man | man -l -",
			Action: func(c *cli.Context) error {
				if err := noArguments(c); err != nil {
					return err
				}
				_, err := fmt.Fprint(c.App.Writer, manPage(all))
				return err
			},
			OnUsageError: usageError, HideHelpCommand: true, CustomHelpTemplate: shortHelp,
		})
}

const shortHelp = `{{.HelpName}} - {{.Usage}}

USAGE:
   {{.UsageText | nindent 3 | trim}}
`

// flagInfo is what completions and man page need of a flag.
type flagInfo struct {
	name, short, value, usage string // value "" for flags without one
	fallback                  string
	choices                   []string
}

func flagsOf(command *cli.Command) []flagInfo {
	var flags []flagInfo
	for _, flag := range command.Flags {
		f := flagInfo{name: flag.Names()[0]}
		if names := flag.Names(); len(names) > 1 {
			f.short = names[1]
		}
		f.usage = flag.(cli.DocGenerationFlag).GetUsage()
		if before, rest, found := strings.Cut(f.usage, "`"); found {
			value, after, _ := strings.Cut(rest, "`")
			f.value, f.usage = value, before+value+after
		}
		if text, ok := flag.(*cli.StringFlag); ok {
			f.fallback = text.Value
		}
		f.choices = choices[f.name]
		flags = append(flags, f)
	}
	return append(flags, flagInfo{name: "help", short: "h", usage: "show this help"})
}

// choices are the values of flags that take one of a few words.
var choices = map[string][]string{
	"from":                  keycodec.SourceNames(),
	"to":                    keycodec.TargetNames(),
	"key-type":              keyTypes(),
	"partitioner":           keycodec.PartitionerNames(),
	"on-unparseable":        {"fail", "quarantine", "copy"},
	"on-incompatible-value": {"fail", "quarantine", "copy"},
	"on-collision":          {"fail", "latest"},
	"pruned":                {"tombstone", "omit"},
	"history":               {"all", "latest"},
	"align":                 {"source-end", "none"},
	"compression":           {"none", "gzip", "snappy", "lz4", "zstd"},
	"isolation-level":       {migrate.IsolationUncommitted, migrate.IsolationCommitted},
	"runtime":               migrate.RuntimeNames(),
	"marker":                {"at-end"},
	"lines":                 {migrate.LinesKeys, migrate.LinesJSON},
	"agent-key":             {migrate.AgentKeyKeep, migrate.AgentKeyBusiness, migrate.AgentKeyDigest},
	"output":                {"text", "json"},
	"log-format":            {"text", "json"},
}

func keyTypes() []string {
	var all []string
	for _, t := range keycodec.KeyTypes() {
		all = append(all, string(t))
	}
	return all
}

// takesFile says whether a flag's value may be the name of a file or folder.
func (f flagInfo) takesFile() bool {
	return f.value == "FILE" || f.value == "DIR" || f.name == "align"
}

func names(list []*cli.Command) []string {
	var all []string
	for _, command := range list {
		all = append(all, command.Name)
	}
	return append(all, "completion", "man", "help")
}

func bashCompletion(list []*cli.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# bash completion of rekey
_rekey() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flags=
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		COMPREPLY=($(compgen -W '%s' -- "$cur"))
		return
	fi
	case $prev in
`, strings.Join(names(list), " "))
	seen := map[string]bool{}
	for _, command := range list {
		for _, f := range flagsOf(command) {
			if seen[f.name] || f.value == "" {
				continue
			}
			seen[f.name] = true
			words := "return"
			switch {
			case len(f.choices) > 0 && f.takesFile():
				words = fmt.Sprintf(`COMPREPLY=($(compgen -f -W '%s' -- "$cur")); return`, strings.Join(f.choices, " "))
			case len(f.choices) > 0:
				words = fmt.Sprintf(`COMPREPLY=($(compgen -W '%s' -- "$cur")); return`, strings.Join(f.choices, " "))
			case f.value == "DIR":
				words = `COMPREPLY=($(compgen -d -- "$cur")); return`
			case f.takesFile():
				words = `COMPREPLY=($(compgen -f -- "$cur")); return`
			}
			fmt.Fprintf(&b, "\t--%s) %s ;;\n", f.name, words)
		}
	}
	b.WriteString("\tesac\n\tcase ${COMP_WORDS[1]} in\n")
	for _, command := range list {
		var flags []string
		for _, f := range flagsOf(command) {
			flags = append(flags, "--"+f.name)
		}
		fmt.Fprintf(&b, "\t%s) flags='%s' ;;\n", command.Name, strings.Join(flags, " "))
	}
	b.WriteString("\tcompletion) flags='bash zsh fish' ;;\n\tesac\n\tCOMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n}\ncomplete -F _rekey rekey\n")
	return b.String()
}

func zshCompletion(list []*cli.Command) string {
	quote := strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`)
	var b strings.Builder
	b.WriteString("#compdef rekey\n# zsh completion of rekey\n_rekey() {\n\tif (( CURRENT == 2 )); then\n\t\tlocal -a commands=(\n")
	for _, command := range list {
		fmt.Fprintf(&b, "\t\t\t'%s:%s'\n", command.Name, quote.Replace(command.Usage))
	}
	b.WriteString("\t\t\t'completion:print completions for a shell'\n\t\t\t'man:print the man page'\n\t\t\t'help:list the commands'\n" +
		"\t\t)\n\t\t_describe command commands\n\t\treturn\n\tfi\n\tlocal command=$words[2]\n\tshift words\n\t(( CURRENT-- ))\n\tcase $command in\n")
	for _, command := range list {
		fmt.Fprintf(&b, "\t%s)\n\t\t_arguments", command.Name)
		for _, f := range flagsOf(command) {
			spec := "--" + f.name + "[" + quote.Replace(f.usage) + "]"
			switch {
			case f.value == "":
			case f.value == "DIR":
				spec += ":" + f.value + ":_files -/"
			case len(f.choices) > 0 && !f.takesFile():
				spec += ":" + f.value + ":(" + strings.Join(f.choices, " ") + ")"
			case f.takesFile():
				spec += ":" + f.value + ":_files"
			default:
				spec += ":" + quote.Replace(f.value) + ":"
			}
			fmt.Fprintf(&b, " \\\n\t\t\t'%s'", spec)
		}
		b.WriteString("\n\t\t;;\n")
	}
	b.WriteString("\tcompletion) _values shell bash zsh fish ;;\n\tesac\n}\ncompdef _rekey rekey\n")
	return b.String()
}

func fishCompletion(list []*cli.Command) string {
	quote := func(text string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
	}
	var b strings.Builder
	b.WriteString("# fish completion of rekey\ncomplete -c rekey -f\n")
	for _, command := range list {
		fmt.Fprintf(&b, "complete -c rekey -n __fish_use_subcommand -a %s -d %s\n", command.Name, quote(command.Usage))
	}
	b.WriteString("complete -c rekey -n __fish_use_subcommand -a completion -d 'print completions for a shell'\n" +
		"complete -c rekey -n __fish_use_subcommand -a man -d 'print the man page'\n" +
		"complete -c rekey -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n")
	for _, command := range list {
		for _, f := range flagsOf(command) {
			fmt.Fprintf(&b, "complete -c rekey -n '__fish_seen_subcommand_from %s' -l %s -d %s", command.Name, f.name, quote(f.usage))
			if f.short != "" {
				b.WriteString(" -s " + f.short)
			}
			if f.value != "" {
				b.WriteString(" -r")
			}
			if len(f.choices) > 0 {
				b.WriteString(" -a " + quote(strings.Join(f.choices, " ")))
			}
			if f.takesFile() {
				b.WriteString(" -F")
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// manPage is the manual in the form of man(7).
func manPage(list []*cli.Command) string {
	roff := func(text string) string {
		text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
		if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
			text = `\&` + text
		}
		return text
	}
	lines := func(text string) string {
		var b strings.Builder
		for line := range strings.SplitSeq(text, "\n") {
			b.WriteString(roff(line) + "\n")
		}
		return b.String()
	}
	var b strings.Builder
	b.WriteString(".TH REKEY 1 \"\" \"rekey " + roff(version) + "\"\n.SH NAME\nrekey \\- repair the ambiguous keys of a Flink Agents action\\-state topic\n" +
		".SH SYNOPSIS\n.B rekey\n.I COMMAND\n[flags]\n.SH DESCRIPTION\n" +
		"Reads the action\\-state topic of a Flink Agents 0.1 to 0.3 job, re\\-encodes every key unambiguously into a new topic,\n" +
		"reports every key that cannot be parsed, and proves that the copy is right. The old topic is only ever read.\n" +
		"Standard output carries only the result; progress and errors go to standard error.\n.SH COMMANDS\n")
	for _, command := range list {
		fmt.Fprintf(&b, ".SS %s\n%s.PP\n.nf\n%s.fi\n", roff(command.Name), lines(strings.ToUpper(command.Usage[:1])+command.Usage[1:]+"."), lines(command.UsageText))
		for _, f := range flagsOf(command) {
			name := `\fB` + roff("--"+f.name) + `\fR`
			if f.short != "" {
				name += `, \fB` + roff("-"+f.short) + `\fR`
			}
			if f.value != "" {
				name += ` \fI` + roff(f.value) + `\fR`
			}
			usage := f.usage
			if f.fallback != "" {
				usage += " (default: " + f.fallback + ")"
			}
			fmt.Fprintf(&b, ".TP\n%s\n%s", name, lines(usage))
		}
	}
	b.WriteString(".SH EXIT STATUS\n.nf\n" + lines(strings.TrimSuffix(strings.TrimPrefix(exitCodes, "EXIT CODES:\n"), "\n")) + ".fi\n")
	b.WriteString(".SH ENVIRONMENT\nEach flag is an environment variable too: \\fB" + roff(env("run-dir")[0]) + "\\fR is \\fB" + roff("--run-dir") + "\\fR.\n" +
		"\\fBNO_COLOR\\fR, set to anything, turns colours off, as \\fBTERM\\fR=dumb does.\n")
	return b.String()
}
