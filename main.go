// Command rekey repairs the action-state topic of a Flink Agents 0.1-0.3 job:
// it reads the old topic, re-encodes its ambiguous keys and writes them to a
// new topic. See the README for what that means and docs/design.md for how the
// parts work together.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"rekey/migrate"
)

// version is set by the linker for releases.
var version = "dev"

const exitCodes = `EXIT CODES:
   0  done, clean
   1  unexpected failure (broker, disk, bug)
   2  wrong flags or configuration
   3  keys that cannot be parsed remain, and the policy is to fail
   4  the world changed: topic re-created, partitions added, log start passed
      what is needed, source still written to, plan edited
   5  verify or rehearse found a difference
   6  preflight refused: permissions, sizes, timestamps, replication,
      colliding keys, unreadable values, target not empty or wrongly configured
   7  interrupted; the same command resumes
`

func main() {
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run carries out a command line and gives the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal ends the phase cleanly; after it, signals are as they
	// were before, so a second one stops the process at once.
	context.AfterFunc(ctx, stop)

	app := &cli.App{
		Name:                   "rekey",
		Usage:                  "repair the ambiguous keys of a Flink Agents action-state topic",
		UsageText:              "rekey COMMAND [flags]\n\nexample: rekey demo",
		Version:                version,
		CustomAppHelpTemplate:  cli.AppHelpTemplate + "\n" + exitCodes,
		Commands:               withDocs(commands(stdin)),
		Reader:                 stdin,
		Writer:                 stdout,
		ErrWriter:              stderr,
		HideHelpCommand:        true,
		UseShortOptionHandling: true,
		SliceFlagSeparator:     ";",                          // a comma is part of values such as compact,delete
		ExitErrHandler:         func(*cli.Context, error) {}, // the library would end the process
		OnUsageError:           usageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usage(fmt.Errorf("unknown command %q", c.Args().First()))
			}
			return cli.ShowAppHelp(c)
		},
	}
	err := app.RunContext(ctx, args)
	switch {
	case err == nil:
	case jsonErrors(args, os.Getenv(env("log-format")[0])):
		printJSONError(stderr, err, migrate.ExitCode(err))
	default:
		printError(stderr, err)
	}
	return migrate.ExitCode(err)
}

// printError says what went wrong and what to do, on a line each.
func printError(stderr io.Writer, err error) {
	fmt.Fprintf(stderr, "rekey: %v\n", err)
	if advice := migrate.Advice(err); advice != "" {
		fmt.Fprintf(stderr, "  what to do: %s\n", strings.ReplaceAll(advice, "\n", "\n  "))
	}
}

// usageError marks what the flag parser refuses as wrong flags.
func usageError(c *cli.Context, err error, _ bool) error { return usage(err) }

func usage(err error) error {
	return &migrate.Failure{Kind: migrate.ErrUsage, What: strings.TrimSpace(err.Error()), Do: "rekey COMMAND --help lists the flags"}
}
