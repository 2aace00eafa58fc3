package report

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The page runs in a real browser without a word on the console: its policy lets
// its own script run, and no key becomes markup or script.
func TestBrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("chromium is not installed: apt-get install chromium")
		}
		t.Skip("chromium is not installed")
	}
	// A page that says something on the console, and one with a script that its
	// policy forbids: if these pass unnoticed, so would everything else.
	for name, page := range map[string]string{
		"an error":         `<!doctype html><title>x</title><script>nothing.there()</script>`,
		"a refused script": `<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'"><title>x</title><script>1</script>`,
	} {
		if _, console := browse(t, chromium, []byte(page)); len(console) == 0 {
			t.Errorf("%s leaves the console silent", name)
		}
	}
	for name, r := range sampleReports() {
		t.Run(name, func(t *testing.T) {
			var page bytes.Buffer
			if err := r.WriteHTML(&page); err != nil {
				t.Fatal(err)
			}
			dom, console := browse(t, chromium, page.Bytes())
			for _, line := range console {
				t.Error(line)
			}
			if n := strings.Count(dom, "<script"); n != 1 {
				t.Errorf("%d scripts in the page, want its own one", n)
			}
			// The script ran: it alone counts the keys that the filter shows.
			if keys := len(r.Examples); keys > 0 && !strings.Contains(dom, ` keys</`) {
				t.Error("the script did not count the keys")
			}
		})
	}
}

// browse loads a page and gives the document as it is after scripts ran, and
// what was said on the console.
func browse(t *testing.T, chromium string, page []byte) (dom string, console []string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom", "file://"+file)
	var out, log bytes.Buffer
	command.Stdout, command.Stderr = &out, &log
	command.WaitDelay = 10 * time.Second
	if err := command.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, log.Bytes())
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, ":CONSOLE") {
			console = append(console, strings.TrimSpace(line))
		}
	}
	return out.String(), console
}
