package migrate

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The files of a run directory.
const (
	planFileName        = "plan.json"
	unparseableFileName = "unparseable.jsonl"
	quarantineFileName  = "quarantine.jsonl"
	repairsFileName     = "repairs.jsonl"
	pruneFileName       = "prune.jsonl"
	unmatchedFileName   = "prune-unmatched.jsonl"
	actionsTemplateName = "actions.json.template"
	incompatibleName    = "incompatible-values.jsonl"
	reportJSONName      = "report.json"
	reportTextName      = "report.txt"
	reportHTMLName      = "report.html"
	applyFileName       = "apply.json"
	verifyFileName      = "verify.json"
)

// runDir is the folder that holds one migration's plan, reports and evidence.
type runDir string

// create makes the folder if it is missing and checks that it can be written.
func (d runDir) create() error {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return &Failure{Kind: ErrUsage, What: "cannot make --run-dir", Cause: err, Do: "name a folder that this user may write"}
	}
	probe, err := os.CreateTemp(string(d), ".probe-*")
	if err != nil {
		return &Failure{Kind: ErrUsage, What: "cannot write to --run-dir", Cause: err, Do: "name a folder that this user may write"}
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func (d runDir) path(name string) string { return filepath.Join(string(d), name) }

func (d runDir) has(name string) (bool, error) {
	_, err := os.Stat(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// write writes a file as a whole or not at all: into a temporary file beside
// it, synced, then renamed over it, then the folder synced.
func (d runDir) write(name string, fill func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(string(d), "."+name+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", d.path(name), err)
	}
	defer func() {
		if err != nil {
			// What failed is already being reported; a leftover is harmless.
			err = fmt.Errorf("write %s: %w", d.path(name), errors.Join(err, ignoreClosed(file.Close()), os.Remove(file.Name())))
		}
	}()
	buffered := bufio.NewWriterSize(file, 1<<16)
	if err := fill(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if err := file.Chmod(0o644); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), d.path(name)); err != nil {
		return err
	}
	return d.sync()
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// sync makes a rename durable.
func (d runDir) sync() error {
	folder, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// digest is the SHA-256 of a file, in hex.
func (d runDir) digest(name string) (sum string, err error) {
	file, err := os.Open(d.path(name))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("read %s: %w", d.path(name), err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
