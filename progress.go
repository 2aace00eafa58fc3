package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"rekey/migrate"
)

// newProgress shows progress on standard error: a bar on a terminal, a line
// every few seconds elsewhere (as JSON if the log is), nothing with --quiet.
func newProgress(c *cli.Context) migrate.Progress {
	if c.Bool("quiet") {
		return migrate.NoProgress{}
	}
	if log := newLog(c).json; log != nil {
		return &lines{log: log, now: time.Now}
	}
	if file, ok := c.App.ErrWriter.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return &bar{out: c.App.ErrWriter}
	}
	return &lines{out: c.App.ErrWriter, now: time.Now}
}

// bar draws a progress bar with rate and time left.
type bar struct {
	out io.Writer

	mu   sync.Mutex
	bar  *progressbar.ProgressBar
	name string
	wait string
}

func (b *bar) Phase(name string, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name, b.wait = name, ""
	b.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(b.out), progressbar.OptionSetDescription(name),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("rec"),
		progressbar.OptionSetWidth(16), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetPredictTime(true), progressbar.OptionShowElapsedTimeOnFinish(), progressbar.OptionClearOnFinish())
}

func (b *bar) Add(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar != nil {
		b.draw(b.bar.Add64(n))
	}
}

func (b *bar) Wait(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if reason == b.wait {
		return
	}
	b.wait = reason
	if b.bar == nil {
		sayWait(b.out, reason)
		return
	}
	if reason == "" {
		b.bar.Describe(b.name)
		return
	}
	b.bar.Describe(b.name + " (waiting: " + reason + ")")
}

func (b *bar) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar != nil {
		b.draw(b.bar.Finish())
		b.bar = nil
	}
}

// draw stops drawing when the terminal is gone: progress must not end a run.
func (b *bar) draw(err error) {
	if err != nil {
		b.bar = nil
	}
}

// sayWait says what is waited for before or between the parts of the work.
func sayWait(out io.Writer, reason string) {
	if reason != "" {
		fmt.Fprintf(out, "waiting: %s\n", reason)
	}
}

// linesEvery is the time between two progress lines.
const linesEvery = 5 * time.Second

// lines writes a plain line every few seconds and at the end of each part.
type lines struct {
	out io.Writer
	log *slog.Logger // instead of out, or nil
	now func() time.Time

	mu          sync.Mutex
	name        string
	total, done int64
	began, last time.Time
	wait        string
}

func (l *lines) Phase(name string, total int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name, l.total, l.done, l.wait = name, total, 0, ""
	l.began = l.now()
	l.last = l.began
}

func (l *lines) Add(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done += n
	if l.now().Sub(l.last) >= linesEvery {
		l.print("")
	}
}

func (l *lines) Wait(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason == l.wait {
		return
	}
	l.wait = reason
	switch {
	case l.name == "" && l.log != nil:
		if reason != "" {
			l.log.Info("waiting", "for", reason)
		}
	case l.name == "":
		sayWait(l.out, reason)
	case reason != "":
		l.print(", waiting: " + reason)
	}
}

func (l *lines) Done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.name != "" {
		l.print(", done")
		l.name = ""
	}
}

func (l *lines) print(suffix string) {
	now := l.now()
	rate := float64(l.done) / max(now.Sub(l.began).Seconds(), 0.001)
	if l.log != nil {
		l.log.Info("progress", "part", l.name, "done", l.done, "total", l.total, "per_second", int64(rate), "waiting", l.wait, "finished", suffix == ", done")
		l.last = now
		return
	}
	left := ""
	if suffix == "" && rate > 0 && l.done < l.total {
		left = fmt.Sprintf(", %s left", time.Duration(float64(l.total-l.done)/rate*float64(time.Second)).Round(time.Second))
	}
	of := ""
	if l.total >= 0 { // else nobody knows
		of = fmt.Sprintf(" of %d", l.total)
	}
	fmt.Fprintf(l.out, "%s: %d%s, %.0f a second%s%s\n", l.name, l.done, of, rate, left, suffix)
	l.last = now
}
