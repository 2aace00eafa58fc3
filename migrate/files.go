package migrate

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// fileSystem is what a run directory needs of one. It is the operating system's
// but for tests, which have some that fail or lose what was not synced.
type fileSystem interface {
	Lstat(path string) (fs.FileInfo, error)
	Stat(path string) (fs.FileInfo, error)
	Mkdir(path string, mode fs.FileMode) error
	ReadDir(path string) ([]fs.DirEntry, error)
	Open(path string) (openFile, error)
	CreateTemp(folder, pattern string) (openFile, error)
	Rename(from, to string) error
	Remove(path string) error
}

// openFile is an open file, or a folder opened to be synced.
type openFile interface {
	io.ReadWriteSeeker
	io.ReaderAt
	io.Closer
	Name() string
	Chmod(fs.FileMode) error
	Sync() error
}

type osFiles struct{}

func (osFiles) Lstat(path string) (fs.FileInfo, error)     { return os.Lstat(path) }
func (osFiles) Stat(path string) (fs.FileInfo, error)      { return os.Stat(path) }
func (osFiles) Mkdir(path string, mode fs.FileMode) error  { return os.Mkdir(path, mode) }
func (osFiles) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
func (osFiles) Open(path string) (openFile, error)         { return os.Open(path) }
func (osFiles) CreateTemp(folder, pattern string) (openFile, error) {
	return os.CreateTemp(folder, pattern)
}
func (osFiles) Rename(from, to string) error { return os.Rename(from, to) }
func (osFiles) Remove(path string) error     { return os.Remove(path) }

// syncFolder makes what was created, renamed or removed in a folder durable.
// Windows does that by itself, and some network file systems cannot do it at
// all: there is nothing more to be had there.
func syncFolder(files fileSystem, path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := files.Open(path)
	if err != nil {
		return err
	}
	err = folder.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, folder.Close())
}

// makeFolder makes a folder and those above it that are missing, and makes each
// of them durable.
func makeFolder(files fileSystem, path string) error {
	info, err := files.Stat(path)
	if err == nil && !info.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if parent == path {
		return err
	}
	if err := makeFolder(files, parent); err != nil {
		return err
	}
	if err := files.Mkdir(path, 0o755); err != nil {
		if info, statErr := files.Stat(path); statErr != nil || !info.IsDir() {
			return err // or else another process made it just now
		}
	}
	return syncFolder(files, parent)
}
