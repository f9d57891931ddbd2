// Command oracle judges pods by Kubernetes' own restart rules.
//
// It reads one Pod per line as JSON and prints, per line, `done` when every container beside the
// proxy has ended and the kubelet starts none of them again, else `not`.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

const proxy = "istio-proxy"

func done(pod *v1.Pod) bool {
	states := map[string]v1.ContainerState{}
	for _, status := range pod.Status.ContainerStatuses {
		states[status.Name] = status.State
	}
	for _, container := range pod.Spec.Containers {
		ended := states[container.Name].Terminated
		if ended != nil {
			rule, found := podutil.FindMatchingContainerRestartRule(container, ended.ExitCode)
			if found && rule.Action == v1.ContainerRestartRuleActionRestartAllContainers {
				return false
			}
		}
		if container.Name == proxy {
			continue
		}
		if ended == nil || podutil.ContainerShouldRestart(container, pod.Spec, ended.ExitCode) {
			return false
		}
	}
	return true
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<16), 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var pod v1.Pod
		if err := json.Unmarshal(lines.Bytes(), &pod); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			os.Exit(1)
		}
		if done(&pod) {
			fmt.Fprintln(out, "done")
		} else {
			fmt.Fprintln(out, "not")
		}
	}
}
