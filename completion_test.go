package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func output(t *testing.T, args ...string) string {
	t.Helper()
	var out, failure bytes.Buffer
	if code := run(append([]string{"rekey"}, args...), strings.NewReader(""), &out, &failure); code != 0 || failure.Len() > 0 {
		t.Fatalf("%v exits %d, says %q", args, code, failure.String())
	}
	return out.String()
}

// TestCompletion holds each shell's completions to the commands and flags, and
// lets the shells that are there judge the syntax.
func TestCompletion(t *testing.T) {
	list := commands(strings.NewReader(""))
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			script := output(t, "completion", shell)
			for _, command := range list {
				for _, f := range flagsOf(command) {
					if want := map[string]string{"bash": "--", "zsh": "--", "fish": "-l "}[shell] + f.name; !strings.Contains(script, want) {
						t.Errorf("%s %s is not there", command.Name, want)
					}
				}
			}
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(err)
			}
			check := exec.Command(path, "-n")
			check.Stdin = strings.NewReader(script)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	for flag := range choices {
		if !slices.ContainsFunc(list, func(c *cli.Command) bool {
			return slices.ContainsFunc(flagsOf(c), func(f flagInfo) bool { return f.name == flag && f.value != "" })
		}) {
			t.Errorf("--%s has choices and does not exist", flag)
		}
	}
	var out, failure bytes.Buffer
	if code := run([]string{"rekey", "completion", "tcsh"}, strings.NewReader(""), &out, &failure); code != 2 {
		t.Errorf("exit code %d", code)
	}
}

// TestBashCompletion completes words as bash does.
func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	script := output(t, "completion", "bash")
	for line, want := range map[string]string{
		"rekey ver":                            "verify",
		"rekey plan --on-unp":                  "--on-unparseable",
		"rekey plan --on-unparseable qu":       "quarantine",
		"rekey apply --allow":                  "--allow-live-source",
		"rekey apply --dry":                    "",
		"rekey rehearse --run-dir x --runtime": "--runtime",
		"rekey completion f":                   "fish",
	} {
		words := strings.Fields(line)
		command := exec.Command(bash, "-c", script+`COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rekey; echo "${COMPREPLY[*]}"`, "bash")
		command.Args = append(command.Args, words...)
		out, err := command.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: %q, want %q, %v", line, got, want, err)
		}
	}
}

// TestManPage holds the manual to the commands and flags.
func TestManPage(t *testing.T) {
	page := output(t, "man")
	for _, command := range commands(strings.NewReader("")) {
		if !strings.Contains(page, "\n.SS "+command.Name+"\n") {
			t.Errorf("%s is not there", command.Name)
		}
		for _, f := range flagsOf(command) {
			if !strings.Contains(page, `\fB\-\-`+strings.ReplaceAll(f.name, "-", `\-`)+`\fR`) {
				t.Errorf("--%s is not there", f.name)
			}
		}
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "'") {
			t.Errorf("a line begins with a request: %s", line)
		}
	}
	if path, err := exec.LookPath("man"); err == nil {
		show := exec.Command(path, "--warnings", "-l", "-")
		show.Stdin = strings.NewReader(page)
		var warnings bytes.Buffer
		show.Stderr = &warnings
		if out, err := show.Output(); err != nil || warnings.Len() > 0 || !bytes.Contains(out, []byte("EXIT STATUS")) {
			t.Errorf("man: %v %s", err, warnings.String())
		}
	}
}

// TestAppHelp holds the list of commands to a terminal of 80 columns.
func TestAppHelp(t *testing.T) {
	for line := range strings.Lines(output(t, "--help")) {
		if n := len(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
