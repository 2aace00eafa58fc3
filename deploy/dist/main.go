// Command dist builds what a release consists of, into a folder: a static binary
// for each platform with its bill of materials (CycloneDX), man page, shell
// completions, and SHA256SUMS of it all.
//
// The same commit and Go release give the same bytes wherever it is built: no
// paths, times or host names go in. A bill of materials is read from the binary
// itself, so it lists what is in it and not what go.mod might need.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

func main() {
	version := flag.String("version", "dev", "of the release")
	dir := flag.String("dir", "dist", "folder to build into")
	only := flag.String("only", "", "one platform, as os/arch, instead of all")
	flag.Parse()
	if *only != "" {
		platforms = []string{*only}
	}
	if err := build(*dir, *version); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func build(dir, version string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	var files []string
	for _, platform := range platforms {
		goos, arch, _ := strings.Cut(platform, "/")
		name := fmt.Sprintf("rekey-%s-%s-%s", version, goos, arch)
		if goos == "windows" {
			name += ".exe"
		}
		path := filepath.Join(dir, name)
		if err := compile(path, version, "GOOS="+goos, "GOARCH="+arch); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		if err := writeBill(path, name, version); err != nil {
			return fmt.Errorf("%s: bill of materials: %w", platform, err)
		}
		files = append(files, name, name+".cdx.json")
	}
	host := filepath.Join(dir, ".host")
	defer os.Remove(host)
	if err := compile(host, version, "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH); err != nil {
		return err
	}
	for name, args := range map[string][]string{
		"rekey.1": {"man"}, "rekey.bash": {"completion", "bash"}, "_rekey": {"completion", "zsh"}, "rekey.fish": {"completion", "fish"},
	} {
		out, err := exec.Command(host, args...).Output()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), out, 0o666); err != nil {
			return err
		}
		files = append(files, name)
	}
	slices.Sort(files)
	var sums bytes.Buffer
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
	}
	fmt.Print(sums.String())
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), sums.Bytes(), 0o666)
}

func compile(path, version string, env ...string) error {
	command := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.version="+version, "-o", path, ".")
	command.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0"), env...)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	return command.Run()
}

// A bill of materials in the terms of CycloneDX 1.5.
type bill struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Reference  string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []digest   `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type digest struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Reference string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

func writeBill(path, name, version string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	main := component{Type: "application", Reference: "rekey@" + version, Name: "rekey", Version: version,
		Hashes:     []digest{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(content))}},
		Properties: []property{{"file", name}}}
	b := bill{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{main}}
	compiler := strings.TrimPrefix(info.GoVersion, "go")
	b.Components = append(b.Components, component{Type: "library", Reference: "std@" + compiler, Name: "std", Version: compiler, PURL: "pkg:golang/std@" + compiler})
	for _, module := range info.Deps {
		b.Components = append(b.Components, library(module))
	}
	whole := dependency{Reference: main.Reference, DependsOn: []string{}}
	for _, part := range b.Components {
		whole.DependsOn = append(whole.DependsOn, part.Reference)
	}
	b.Dependencies = []dependency{whole}
	out, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path+".cdx.json", append(out, '\n'), 0o666)
}

func library(module *debug.Module) component {
	if module.Replace != nil {
		module = module.Replace
	}
	purl := "pkg:golang/" + module.Path + "@" + module.Version
	return component{Type: "library", Reference: module.Path + "@" + module.Version, Name: module.Path, Version: module.Version, PURL: purl,
		Properties: []property{{"go:sum", module.Sum}}}
}
