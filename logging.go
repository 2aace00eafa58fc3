package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/urfave/cli/v2"

	"rekey/migrate"
)

// logger writes what is said on standard error: as text for people, or one JSON
// object a line (--log-format json) for machines that collect logs.
type logger struct {
	out     io.Writer
	json    *slog.Logger // nil: text
	verbose bool
}

func newLog(c *cli.Context) *logger {
	l := &logger{out: c.App.ErrWriter, verbose: c.Bool("verbose")}
	if c.String("log-format") == "json" {
		l.json = jsonLog(c.App.ErrWriter)
	}
	return l
}

func jsonLog(out io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// warn says what everybody should see.
func (l *logger) warn(format string, args ...any) {
	if l.json != nil {
		l.json.Warn(fmt.Sprintf(format, args...))
		return
	}
	fmt.Fprintf(l.out, "rekey: "+format+"\n", args...)
}

// detail says what only whoever asked for it (--verbose) should see.
func (l *logger) detail(format string, args ...any) {
	switch {
	case !l.verbose:
	case l.json != nil:
		l.json.Debug(fmt.Sprintf(format, args...))
	default:
		fmt.Fprintf(l.out, format+"\n", args...)
	}
}

// jsonErrors says whether errors are to be logged as JSON. It looks at the
// command line itself, for flags that cannot be parsed are reported too.
func jsonErrors(args []string, variable string) bool {
	asked := variable == "json"
	for i, arg := range args {
		name, value, glued := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if arg == "--" {
			break
		}
		if name != "log-format" || !strings.HasPrefix(arg, "-") {
			continue
		}
		if !glued && i+1 < len(args) {
			value = args[i+1]
		}
		asked = value == "json"
	}
	return asked
}

// printJSONError is printError for machines.
func printJSONError(stderr io.Writer, err error, code int) {
	attributes := []slog.Attr{slog.Int("exit_code", code)}
	if advice := migrate.Advice(err); advice != "" {
		attributes = append(attributes, slog.String("what_to_do", advice))
	}
	jsonLog(stderr).LogAttrs(context.Background(), slog.LevelError, err.Error(), attributes...)
}
