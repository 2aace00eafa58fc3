package main

import (
	"errors"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v3"
)

// volume is one of a pod, and the object that it comes from.
type volume struct {
	Name      string
	ConfigMap struct{ Name string } `yaml:"configMap"`
	Secret    struct {
		Name string `yaml:"secretName"`
	} `yaml:"secret"`
	Claim struct {
		Name string `yaml:"claimName"`
	} `yaml:"persistentVolumeClaim"`
}

// TestKubernetes holds the Job to the command line and to itself: flags exist,
// every volume is defined and comes from an object of the file, every path that
// the properties name is mounted, and the exit codes are those of the table.
func TestKubernetes(t *testing.T) {
	content, err := os.ReadFile("deploy/kubernetes/rekey.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Kind     string
		Metadata struct{ Name string }
		Data     map[string]string
		Strings  map[string]string `yaml:"stringData"`
		Spec     struct {
			Policy struct {
				Rules []struct {
					Codes struct{ Values []int } `yaml:"onExitCodes"`
				}
			} `yaml:"podFailurePolicy"`
			Template struct {
				Spec struct {
					Containers []struct {
						Args   []string
						Mounts []struct {
							Name string
							Path string `yaml:"mountPath"`
						} `yaml:"volumeMounts"`
					}
					Volumes []volume
				}
			}
		}
	}
	objects := map[string]object{}
	decoder := yaml.NewDecoder(strings.NewReader(string(content)))
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		objects[o.Kind+"/"+o.Metadata.Name] = o
	}
	job := objects["Job/rekey"].Spec
	container := job.Template.Spec.Containers[0]
	at := slices.IndexFunc(commands(strings.NewReader("")), func(c *cli.Command) bool { return c.Name == container.Args[0] })
	if at < 0 {
		t.Fatalf("no command %s", container.Args[0])
	}
	command := commands(strings.NewReader(""))[at]
	for _, arg := range container.Args[1:] {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !slices.ContainsFunc(flagsOf(command), func(f flagInfo) bool { return f.name == name }) {
			t.Errorf("%s has no flag %s", command.Name, arg)
		}
	}
	files := map[string]bool{} // everything that is mounted
	for _, mount := range container.Mounts {
		at := slices.IndexFunc(job.Template.Spec.Volumes, func(v volume) bool { return v.Name == mount.Name })
		if at < 0 {
			t.Errorf("no volume %s", mount.Name)
			continue
		}
		from := job.Template.Spec.Volumes[at]
		for kind, name := range map[string]string{"ConfigMap": from.ConfigMap.Name, "Secret": from.Secret.Name, "PersistentVolumeClaim": from.Claim.Name} {
			if name == "" {
				continue
			}
			o, found := objects[kind+"/"+name]
			if !found {
				t.Errorf("no %s %s", kind, name)
			}
			for key := range o.Data {
				files[path.Join(mount.Path, key)] = true
			}
			for key := range o.Strings {
				files[path.Join(mount.Path, key)] = true
			}
		}
	}
	properties := objects["ConfigMap/rekey-client"].Data["client.properties"]
	for _, used := range regexp.MustCompile(`/[a-z/.]+`).FindAllString(properties+strings.Join(container.Args, "\n"), -1) {
		if strings.HasPrefix(used, "/etc/") || strings.HasPrefix(used, "/var/") {
			if !files[used] {
				t.Errorf("%s is not mounted", used)
			}
		}
	}
	for _, code := range job.Policy.Rules[0].Codes.Values {
		if !strings.Contains(exitCodes, "   "+string(rune('0'+code))+"  ") || code == 0 || code == 1 || code == 7 {
			t.Errorf("exit code %d", code)
		}
	}
}
