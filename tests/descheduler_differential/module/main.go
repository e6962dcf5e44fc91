// Package main decodes policies with the descheduler's own code.
//
// It reads one policy as JSON per line from stdin, and writes as JSON per line to stdout what LoadPolicyConfig of
// sigs.k8s.io/descheduler returns: the policy with its defaults, or the error with which the descheduler ends.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"sigs.k8s.io/descheduler/pkg/api"
	"sigs.k8s.io/descheduler/pkg/descheduler"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"
)

// classPriority is the priority of every PriorityClass that a policy names.
const classPriority = 1000

type outcome struct {
	Policy *api.DeschedulerPolicy `json:"policy,omitempty"`
	Error  string                 `json:"error,omitempty"`
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(os.Stderr)
	pluginregistry.PluginRegistry = pluginregistry.NewRegistry()
	descheduler.RegisterDefaultPlugins(pluginregistry.PluginRegistry)
	lines := bufio.NewReader(os.Stdin)
	encoder := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			if err := encoder.Encode(decode(line)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		if err != nil {
			return
		}
	}
}

func decode(policy []byte) outcome {
	file, err := os.CreateTemp("", "policy-*.json")
	if err != nil {
		return outcome{Error: err.Error()}
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(policy); err != nil {
		return outcome{Error: err.Error()}
	}
	if err := file.Close(); err != nil {
		return outcome{Error: err.Error()}
	}
	client := fake.NewClientset()
	client.PrependReactor("get", "priorityclasses", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.GetAction).GetName()
		return true, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: classPriority}, nil
	})
	found, err := descheduler.LoadPolicyConfig(file.Name(), client, pluginregistry.PluginRegistry)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	return outcome{Policy: found}
}
