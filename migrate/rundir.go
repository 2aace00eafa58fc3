package migrate

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
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
type runDir struct {
	folder string
	files  fileSystem
}

// runDir is a run directory as --run-dir names it.
func (e Environment) runDir(folder string) runDir {
	if e.files == nil {
		return runDir{folder, osFiles{}}
	}
	return runDir{folder, e.files}
}

// create makes the folder if it is missing and checks that it can be written.
func (d runDir) create() error {
	if err := makeFolder(d.files, filepath.Clean(d.folder)); err != nil {
		return &Failure{Kind: ErrUsage, What: "cannot make --run-dir", Cause: err, Do: "name a folder that this user may write"}
	}
	return d.checkWritable()
}

// checkWritable finds out whether files can be written before anything else is
// done whose outcome would be lost.
func (d runDir) checkWritable() error {
	probe, err := d.files.CreateTemp(d.folder, ".probe-*")
	if err == nil {
		_, err = probe.Write([]byte{'\n'})
		err = errors.Join(err, probe.Close(), d.files.Remove(probe.Name()))
	}
	if err != nil {
		return &Failure{Kind: ErrUsage, What: "cannot write to --run-dir", Cause: err, Do: "name a folder that this user may write and that has room"}
	}
	return nil
}

func (d runDir) path(name string) string { return filepath.Join(d.folder, name) }

// unreadable is the error of a file that is there but cannot be read.
func (d runDir) unreadable(name string, cause error) error {
	kind := ErrStorage
	if errors.Is(cause, fs.ErrPermission) || errors.Is(cause, syscall.ENOTDIR) || errors.Is(cause, syscall.EISDIR) {
		kind = ErrUsage
	}
	return &Failure{Kind: kind, What: fmt.Sprintf("cannot read %s of the run directory", name), Cause: cause,
		Do: "see that --run-dir is the right folder, that this user may read it and that its disk is sound; then run the same command again"}
}

// unwritable is the error of a file that could not be written: it is as it was
// before, or not there.
func (d runDir) unwritable(name string, cause error) error {
	return &Failure{Kind: ErrStorage, What: fmt.Sprintf("cannot write %s of the run directory", name), Cause: cause,
		Do: "see that --run-dir is still there, has room and may be written by this user; then run the same command again"}
}

// has says whether there is a file. A symbolic link that leads nowhere counts:
// nobody knows what it hides.
func (d runDir) has(name string) (bool, error) {
	_, err := d.files.Lstat(d.path(name))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return false, nil
	}
	return false, d.unreadable(name, err)
}

// open opens a file for reading. The caller tells a missing one.
func (d runDir) open(name string) (openFile, error) {
	file, err := d.files.Open(d.path(name))
	switch {
	case err == nil:
		return file, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read the run directory: %w", err)
	}
	return nil, d.unreadable(name, err)
}

// readFrom hands an open file to fn.
func (d runDir) readFrom(name string, fn func(io.Reader) error) error {
	file, err := d.open(name)
	if err != nil {
		return err
	}
	in := &noteErrors{Reader: file}
	err = fn(in)
	if in.err == nil {
		in.err = file.Close()
	} else {
		_ = file.Close() // what is wrong is known
	}
	if in.err != nil {
		return d.unreadable(name, in.err)
	}
	return err
}

// noteErrors remembers that reading failed, whatever is made of it by a parser.
type noteErrors struct {
	io.Reader
	err error
}

func (n *noteErrors) Read(p []byte) (int, error) {
	read, err := n.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		n.err = err
	}
	return read, err
}

// read is the content of a file.
func (d runDir) read(name string) (content []byte, err error) {
	err = d.readFrom(name, func(r io.Reader) error {
		content, err = io.ReadAll(r)
		return err
	})
	return content, err
}

// copyTo appends a file to w.
func (d runDir) copyTo(w io.Writer, name string) error {
	return d.readFrom(name, func(r io.Reader) error {
		_, err := io.Copy(w, r)
		return err
	})
}

// digest is the SHA-256 of a file, in hex.
func (d runDir) digest(name string) (string, error) {
	hash := sha256.New()
	err := d.copyTo(hash, name)
	return hex.EncodeToString(hash.Sum(nil)), err
}

// write writes a file as a whole or not at all: into a temporary file beside
// it, synced, then renamed over it, then the folder synced. An error of fill is
// handed on as it is.
func (d runDir) write(name string, fill func(io.Writer) error) (err error) {
	file, err := d.files.CreateTemp(d.folder, "."+name+"-*")
	if err != nil {
		return d.unwritable(name, err)
	}
	defer func() {
		if err != nil {
			// What failed is being reported already; a leftover is harmless.
			_ = file.Close()
			_ = d.files.Remove(file.Name())
		}
	}()
	buffered := bufio.NewWriterSize(file, 1<<16)
	filled := fill(buffered)
	if err := buffered.Flush(); err != nil {
		return d.unwritable(name, err)
	}
	if filled != nil {
		return filled
	}
	if err := d.settle(file, name); err != nil {
		return d.unwritable(name, err)
	}
	return nil
}

// settle gives a temporary file its name, for good.
func (d runDir) settle(file openFile, name string) error {
	// Others may read it. Where the file system knows no such thing, it is as it is.
	if err := file.Chmod(0o644); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := d.files.Rename(file.Name(), d.path(name)); err != nil {
		return err
	}
	return syncFolder(d.files, d.folder)
}

// remove removes a file if it is there.
func (d runDir) remove(name string) error {
	if err := d.files.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.unwritable(name, err)
	}
	return nil
}

// leftover matches the temporary files of plan: those of later phases are small,
// and such a phase may be running beside an extension.
var leftover = regexp.MustCompile(`^\.(probe|keys|lines|` + strings.ReplaceAll(strings.Join([]string{
	planFileName, unparseableFileName, quarantineFileName, pruneFileName, unmatchedFileName, actionsTemplateName, incompatibleName,
	reportJSONName, reportTextName, reportHTMLName}, "|"), ".", `\.`) + `)(\.before-extend)?-[0-9]+$`)

// sweep removes what a plan that was killed left behind: it may be what fills
// the disk. Nothing depends on it, so a failure is only logged.
func (d runDir) sweep(env Environment) {
	entries, err := d.files.ReadDir(d.folder)
	for _, entry := range entries {
		if leftover.MatchString(entry.Name()) {
			err = errors.Join(err, d.files.Remove(d.path(entry.Name())))
		}
	}
	if err != nil {
		env.Logf("remove temporary files of an earlier run: %v", err)
	}
}
