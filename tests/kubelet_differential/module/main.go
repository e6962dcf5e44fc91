// Package main runs the kubelet's own eviction manager on timelines.
//
// It reads one timeline as JSON per line from stdin, and writes what the manager does at each reading as JSON per line
// to stdout. The manager is that of k8s.io/kubernetes, called through its unexported synchronize method.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	testingclock "k8s.io/utils/clock/testing"
)

//go:linkname synchronize k8s.io/kubernetes/pkg/kubelet/eviction.(*managerImpl).synchronize
func synchronize(m unsafe.Pointer, ctx context.Context, disks eviction.DiskInfoProvider, pods eviction.ActivePodsFunc) ([]*v1.Pod, error)

type pod struct {
	Name       string            `json:"name"`
	Priority   int32             `json:"priority"`
	Requests   map[string]string `json:"requests"`
	Grace      *int64            `json:"grace"`
	Memory     *uint64           `json:"memory"`
	Root       *uint64           `json:"root"`
	Logs       *uint64           `json:"logs"`
	Processes  *uint64           `json:"processes"`
	RootInodes *uint64           `json:"rootInodes"`
	LogsInodes *uint64           `json:"logsInodes"`
}

type value struct {
	Available uint64 `json:"available"`
	Capacity  uint64 `json:"capacity"`
	At        int64  `json:"at"`
}

type reading struct {
	After  int64            `json:"after"`
	Values map[string]value `json:"values"`
	Gone   []string         `json:"gone"`
}

type timeline struct {
	Hard             map[string]string `json:"hard"`
	Soft             map[string]string `json:"soft"`
	Grace            map[string]string `json:"grace"`
	Reclaim          map[string]string `json:"reclaim"`
	MaxGrace         int64             `json:"maxGrace"`
	Transition       int64             `json:"transition"`
	DedicatedImageFs bool              `json:"dedicatedImageFs"`
	SplitImageFs     bool              `json:"splitImageFs"`
	Pods             []pod             `json:"pods"`
	Readings         []reading         `json:"readings"`
}

type outcome struct {
	Conditions []string `json:"conditions"`
	Evicted    string   `json:"evicted"`
	Grace      int64    `json:"grace"`
}

type disks struct{ dedicated, split bool }

func (d disks) HasDedicatedImageFs(context.Context) (bool, error)     { return d.dedicated, nil }
func (d disks) HasDedicatedContainerFs(context.Context) (bool, error) { return d.split, nil }

type garbage struct{}

func (garbage) DeleteUnusedImages(context.Context) error        { return nil }
func (garbage) DeleteAllUnusedContainers(context.Context) error { return nil }

type provider struct{ summary *statsapi.Summary }

func (p *provider) Get(context.Context, bool) (*statsapi.Summary, error) { return p.summary, nil }
func (p *provider) GetCPUAndMemoryStats(context.Context) (*statsapi.Summary, error) {
	return p.summary, nil
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var t timeline
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := out.Encode(run(t)); err != nil {
			os.Exit(1)
		}
	}
}

func run(t timeline) []outcome {
	thresholds, err := eviction.ParseThresholdConfig(nil, t.Hard, t.Soft, t.Grace, t.Reclaim)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pods := map[string]*v1.Pod{}
	for _, each := range t.Pods {
		pods[each.Name] = newPod(each)
	}
	clock := testingclock.NewFakeClock(time.Unix(1763877600, 0))
	stats := &provider{}
	found := outcome{}
	kill := func(pod *v1.Pod, _ bool, grace *int64, _ func(*v1.PodStatus)) error {
		found.Evicted, found.Grace = pod.Name, *grace
		return nil
	}
	manager, _ := eviction.NewManager(stats, eviction.Config{
		MaxPodGracePeriodSeconds: t.MaxGrace,
		PressureTransitionPeriod: time.Duration(t.Transition) * time.Second,
		Thresholds:               thresholds,
	}, kill, garbage{}, garbage{}, &record.FakeRecorder{}, &v1.ObjectReference{Kind: "Node", Name: "n1"}, clock, false)
	pointer := (*[2]unsafe.Pointer)(unsafe.Pointer(&manager))[1]
	var outcomes []outcome
	for _, each := range t.Readings {
		clock.Step(time.Duration(each.After) * time.Second)
		for _, name := range each.Gone {
			delete(pods, name)
		}
		var active []*v1.Pod
		var podStats []statsapi.PodStats
		for _, spec := range t.Pods {
			if pod, ok := pods[spec.Name]; ok {
				active = append(active, pod)
				podStats = append(podStats, newStats(spec))
			}
		}
		stats.summary = newSummary(each.Values, podStats)
		found = outcome{Conditions: []string{}}
		if _, err := synchronize(pointer, context.Background(), disks{t.DedicatedImageFs, t.SplitImageFs}, func() []*v1.Pod { return active }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if manager.IsUnderMemoryPressure() {
			found.Conditions = append(found.Conditions, "MemoryPressure")
		}
		if manager.IsUnderDiskPressure() {
			found.Conditions = append(found.Conditions, "DiskPressure")
		}
		if manager.IsUnderPIDPressure() {
			found.Conditions = append(found.Conditions, "PIDPressure")
		}
		outcomes = append(outcomes, found)
	}
	return outcomes
}

func newPod(p pod) *v1.Pod {
	requests := v1.ResourceList{}
	for name, text := range p.Requests {
		requests[v1.ResourceName(name)] = resource.MustParse(text)
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: p.Name, UID: types.UID("uid-" + p.Name)},
		Spec: v1.PodSpec{
			Priority:                      &p.Priority,
			TerminationGracePeriodSeconds: p.Grace,
			Containers:                    []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: requests}}},
		},
	}
}

func newStats(p pod) statsapi.PodStats {
	found := statsapi.PodStats{PodRef: statsapi.PodReference{Namespace: "shop", Name: p.Name, UID: "uid-" + p.Name}}
	found.Memory = &statsapi.MemoryStats{WorkingSetBytes: p.Memory}
	found.ProcessStats = &statsapi.ProcessStats{ProcessCount: p.Processes}
	found.Containers = []statsapi.ContainerStats{{
		Name:   "c",
		Rootfs: &statsapi.FsStats{UsedBytes: p.Root, InodesUsed: p.RootInodes},
		Logs:   &statsapi.FsStats{UsedBytes: p.Logs, InodesUsed: p.LogsInodes},
	}}
	return found
}

func newSummary(values map[string]value, pods []statsapi.PodStats) *statsapi.Summary {
	found := &statsapi.Summary{Pods: pods}
	if v, ok := values["memory.available"]; ok {
		used := v.Capacity - v.Available
		found.Node.Memory = &statsapi.MemoryStats{Time: moment(v), AvailableBytes: &v.Available, WorkingSetBytes: &used}
	}
	if v, ok := values["allocatableMemory.available"]; ok {
		used := v.Capacity - v.Available
		found.Node.SystemContainers = []statsapi.ContainerStats{{
			Name:   statsapi.SystemContainerPods,
			Memory: &statsapi.MemoryStats{Time: moment(v), AvailableBytes: &v.Available, WorkingSetBytes: &used},
		}}
	}
	found.Node.Fs = fileSystem(values, "nodefs")
	if image := fileSystem(values, "imagefs"); image != nil {
		found.Node.Runtime = &statsapi.RuntimeStats{ImageFs: image}
	}
	if v, ok := values["pid.available"]; ok {
		most, running := int64(v.Capacity), int64(v.Capacity-v.Available)
		found.Node.Rlimit = &statsapi.RlimitStats{Time: moment(v), MaxPID: &most, NumOfRunningProcesses: &running}
	}
	return found
}

func fileSystem(values map[string]value, name string) *statsapi.FsStats {
	bytes, hasBytes := values[name+".available"]
	inodes, hasInodes := values[name+".inodesFree"]
	if !hasBytes && !hasInodes {
		return nil
	}
	found := &statsapi.FsStats{}
	if hasBytes {
		found.Time, found.AvailableBytes, found.CapacityBytes = moment(bytes), &bytes.Available, &bytes.Capacity
	}
	if hasInodes {
		found.Time, found.InodesFree, found.Inodes = moment(inodes), &inodes.Available, &inodes.Capacity
	}
	return found
}

func moment(v value) metav1.Time { return metav1.NewTime(time.Unix(v.At, 0)) }
