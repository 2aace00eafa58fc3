package main

import (
	"errors"
	"fmt"
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

type container struct {
	Name   string
	Args   []string
	Mounts []struct {
		Name string
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// object is one of Kubernetes: a Job, or what a Job mounts.
type object struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Data    map[string]string
	Strings map[string]string `yaml:"stringData"`
	Spec    struct {
		AccessModes          []string `yaml:"accessModes"`
		CompletionMode       string   `yaml:"completionMode"`
		Completions          int
		Parallelism          int
		BackoffLimitPerIndex int `yaml:"backoffLimitPerIndex"`
		Policy               struct {
			Rules []struct {
				Action string
				Codes  struct {
					Container string `yaml:"containerName"`
					Values    []int
				} `yaml:"onExitCodes"`
			}
		} `yaml:"podFailurePolicy"`
		Template struct {
			Spec struct {
				Init       []container `yaml:"initContainers"`
				Containers []container
				Volumes    []volume
			}
		}
	}
}

func readObjects(t *testing.T, files ...string) map[string]object {
	t.Helper()
	objects := map[string]object{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
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
			name := o.Kind + "/" + o.Metadata.Name
			if _, twice := objects[name]; twice {
				t.Errorf("%s is there twice", name)
			}
			objects[name] = o
		}
	}
	return objects
}

// TestKubernetes holds the Jobs to the command line and to each other: flags exist,
// every volume is defined and comes from an object of the files, every path that
// the properties name is mounted, and the exit codes are those of the table.
func TestKubernetes(t *testing.T) {
	objects := readObjects(t, "deploy/kubernetes/rekey.yaml", "deploy/kubernetes/shards.yaml")
	var jobs []string
	for name, o := range objects {
		if o.Kind != "Job" {
			continue
		}
		jobs = append(jobs, o.Metadata.Name)
		for _, c := range slices.Concat(o.Spec.Template.Spec.Init, o.Spec.Template.Spec.Containers) {
			checkContainer(t, objects, name, c)
		}
		for _, rule := range o.Spec.Policy.Rules {
			if want := map[bool]string{true: "FailIndex", false: "FailJob"}[o.Spec.BackoffLimitPerIndex > 0]; rule.Action != want {
				t.Errorf("%s: action %s, want %s", name, rule.Action, want)
			}
			for _, code := range rule.Codes.Values {
				if !strings.Contains(exitCodes, "   "+string(rune('0'+code))+"  ") || code == 0 || code == 1 || code == 7 {
					t.Errorf("%s: exit code %d", name, code)
				}
			}
		}
		if len(o.Spec.Policy.Rules) != 1 {
			t.Errorf("%s: %d rules for failures", name, len(o.Spec.Policy.Rules))
		}
	}
	slices.Sort(jobs)
	if want := []string{"rekey", "rekey-finish", "rekey-plan", "rekey-shards"}; !slices.Equal(jobs, want) {
		t.Errorf("jobs %v, want %v", jobs, want)
	}
}

func checkContainer(t *testing.T, objects map[string]object, job string, c container) {
	t.Helper()
	at := slices.IndexFunc(commands(strings.NewReader("")), func(command *cli.Command) bool { return command.Name == c.Args[0] })
	if at < 0 {
		t.Fatalf("%s: no command %s", job, c.Args[0])
	}
	command := commands(strings.NewReader(""))[at]
	for _, arg := range c.Args[1:] {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !slices.ContainsFunc(flagsOf(command), func(f flagInfo) bool { return f.name == name }) {
			t.Errorf("%s: %s has no flag %s", job, command.Name, arg)
		}
	}
	files := map[string]bool{} // everything that is mounted
	volumes := objects[job].Spec.Template.Spec.Volumes
	for _, mount := range c.Mounts {
		at := slices.IndexFunc(volumes, func(v volume) bool { return v.Name == mount.Name })
		if at < 0 {
			t.Errorf("%s: no volume %s", job, mount.Name)
			continue
		}
		from := volumes[at]
		for kind, name := range map[string]string{"ConfigMap": from.ConfigMap.Name, "Secret": from.Secret.Name, "PersistentVolumeClaim": from.Claim.Name} {
			if name == "" {
				continue
			}
			o, found := objects[kind+"/"+name]
			if !found {
				t.Errorf("%s: no %s %s", job, kind, name)
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
	for _, used := range regexp.MustCompile(`/[a-z/.]+`).FindAllString(properties+strings.Join(c.Args, "\n"), -1) {
		if strings.HasPrefix(used, "/etc/") || strings.HasPrefix(used, "/var/") {
			if !files[used] {
				t.Errorf("%s: %s is not mounted", job, used)
			}
		}
	}
}

// The completion index is the shard: as many shards as completions, all at once,
// each with a backoff of its own and a run directory that all can mount.
func TestKubernetesShards(t *testing.T) {
	objects := readObjects(t, "deploy/kubernetes/shards.yaml")
	job := objects["Job/rekey-shards"].Spec
	want := fmt.Sprintf("--shard=$(JOB_COMPLETION_INDEX)/%d", job.Completions)
	if job.CompletionMode != "Indexed" || job.Completions < 2 || job.Parallelism != job.Completions || job.BackoffLimitPerIndex < 1 {
		t.Errorf("%+v", job)
	}
	if args := job.Template.Spec.Containers[0].Args; args[0] != "apply" || !slices.Contains(args, want) {
		t.Errorf("%q does not have %s", args, want)
	}
	finish := objects["Job/rekey-finish"].Spec.Template.Spec
	if len(finish.Init) != 1 || finish.Init[0].Args[0] != "apply" || finish.Containers[0].Args[0] != "verify" {
		t.Errorf("what finishes is not apply, then verify: %+v", finish)
	}
	for _, c := range slices.Concat(finish.Init, finish.Containers) {
		if slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--shard") }) {
			t.Errorf("%s is a shard: %q", c.Name, c.Args)
		}
	}
	if modes := objects["PersistentVolumeClaim/rekey-shared-run"].Spec.AccessModes; !slices.Equal(modes, []string{"ReadWriteMany"}) {
		t.Errorf("the run directory is %v", modes)
	}
	// The steps are applied by their labels.
	steps := map[string]int{}
	for name, o := range objects {
		step := o.Metadata.Labels["rekey/step"]
		if step == "" {
			t.Errorf("%s belongs to no step", name)
		}
		steps[step]++
	}
	if steps["plan"] != 2 || steps["shards"] != 1 || steps["finish"] != 1 {
		t.Errorf("steps %v", steps)
	}
}
