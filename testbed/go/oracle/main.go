// Command oracle simulates random pods with the kubelet's own code and judges them.
//
// `oracle SEED NUMBER` prints NUMBER lines: a verdict, a space, and a pod after a sync of the
// kubelet. Exits and failures of containers are random. The kubelet's functions decide which
// containers start, and write the status. The verdict is `done` if the pod ends after its proxy
// and the kubelet starts nothing but native sidecars until then, else `not`.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

const proxy = "istio-proxy"

// podActions has the layout of pkg/kubelet/kuberuntime's type of this name, in the version that
// go.mod pins. A part that is not read here has any type of the same size.
type podActions struct {
	KillPod, CreateSandbox                   bool
	SandboxID                                string
	Attempt                                  uint32
	InitContainersToStart, ContainersToStart []int
	ContainersToKill                         unsafe.Pointer
	EphemeralContainersToStart               []int
	ContainersToUpdate                       unsafe.Pointer
	UpdatePodResources                       bool
	ContainersToReset                        []struct{}
	UpdatePodLevelResources                  bool
}

//go:linkname newManager k8s.io/kubernetes/pkg/kubelet/kuberuntime.newFakeKubeRuntimeManager
func newManager(context.Context, cri.RuntimeService, cri.ImageManagerService, unsafe.Pointer, container.OSInterface, container.RuntimeHelper, any) (unsafe.Pointer, error)

//go:linkname computePodActions k8s.io/kubernetes/pkg/kubelet/kuberuntime.(*kubeGenericRuntimeManager).computePodActions
func computePodActions(unsafe.Pointer, context.Context, *v1.Pod, *container.PodStatus, bool) podActions

//go:linkname generateAPIPodStatus k8s.io/kubernetes/pkg/kubelet.(*Kubelet).generateAPIPodStatus
func generateAPIPodStatus(*kubelet.Kubelet, context.Context, *v1.Pod, *container.PodStatus, bool) v1.PodStatus

var (
	ctx      = context.Background()
	random   *rand.Rand
	clock    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	kl       = &kubelet.Kubelet{}
	manager  unsafe.Pointer
	reasons  = kubelet.NewReasonCache()
	failures = []error{container.ErrCrashLoopBackOff, images.ErrImagePullBackOff, kuberuntime.ErrCreateContainerConfig}
	codes    = []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 42, 137, 143, 255}
	policies = []v1.ContainerRestartPolicy{"Never", "OnFailure", "Always"}
	actions  = []v1.ContainerRestartRuleAction{"Restart", "RestartAllContainers"}
)

// podState is a pod, as the API server and the container runtime know it.
type podState struct {
	pod     v1.Pod
	runtime container.PodStatus
}

type probes struct{ prober.Manager }

func (probes) UpdatePodStatus(_ context.Context, _ *v1.Pod, s *v1.PodStatus) {
	for i := range s.InitContainerStatuses {
		s.InitContainerStatuses[i].Started = new(s.InitContainerStatuses[i].State.Running != nil)
	}
}

type runtime struct{ cri.RuntimeService }

func (runtime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{}, nil
}

// set gives the kubelet a part that only its own package can name.
func set(field string, part any) {
	f := reflect.ValueOf(kl).Elem().FieldByName(field)
	reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().Set(reflect.ValueOf(part))
}

func pick[T any](from ...T) T { return from[random.Intn(len(from))] }

func isInit(s *container.Status) bool { return strings.HasPrefix(s.Name, "init-") }
func isWork(name string) bool         { return strings.Contains(name, "work-") }

func (p *podState) isEnding() bool {
	return podutil.IsPodPhaseTerminal(p.pod.Status.Phase) || p.pod.DeletionTimestamp != nil
}

func (p *podState) running() (names []string) {
	for _, one := range p.runtime.ContainerStatuses {
		if one.State == container.ContainerStateRunning {
			names = append(names, one.Name)
		}
	}
	return names
}

// leave moves containers that have not exited to another state.
func (p *podState) leave(state container.State, code int, names ...string) {
	for i, one := range p.runtime.ContainerStatuses {
		if slices.Contains(names, one.Name) && one.State != container.ContainerStateExited {
			left := *one
			left.State, left.ExitCode, left.FinishedAt = state, code, clock
			p.runtime.ContainerStatuses[i] = &left
		}
	}
}

func (p *podState) setSandbox(state runtimeapi.PodSandboxState) {
	p.runtime.ActiveContainerStatuses = nil
	p.runtime.SandboxStatuses = []*runtimeapi.PodSandboxStatus{{Metadata: &runtimeapi.PodSandboxMetadata{}, State: state}}
}

// sync writes the status of the pod and returns what the kubelet does next.
func (p *podState) sync() podActions {
	clock = clock.Add(time.Second)
	started := p.pod.Status.StartTime
	p.pod.Status = generateAPIPodStatus(kl, ctx, &p.pod, &p.runtime, false)
	p.pod.Status.StartTime = started
	_, restarting := podutil.GetPodCondition(&p.pod.Status, v1.AllContainersRestarting)
	return computePodActions(manager, ctx, &p.pod, &p.runtime, restarting != nil && restarting.Status == v1.ConditionTrue)
}

// act carries out actions as SyncPod of the kubelet's runtime manager does.
func (p *podState) act(do podActions, failing float64) {
	if do.KillPod {
		p.leave(container.ContainerStateExited, 137, p.running()...)
		p.setSandbox(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)
	}
	if do.CreateSandbox {
		p.runtime.ContainerStatuses = slices.DeleteFunc(p.runtime.ContainerStatuses, isInit)
		p.setSandbox(runtimeapi.PodSandboxState_SANDBOX_READY)
	}
	if len(do.ContainersToReset) > 0 {
		p.runtime.ContainerStatuses = nil
	}
	for _, i := range do.InitContainersToStart {
		one := &p.pod.Spec.InitContainers[i]
		if !p.start(one, failing) && isWork(one.Name) {
			return
		}
	}
	for _, i := range do.ContainersToStart {
		p.start(&p.pod.Spec.Containers[i], failing)
	}
}

func (p *podState) start(c *v1.Container, failing float64) bool {
	result := container.SyncResult{Action: container.StartContainer, Target: c.Name}
	if random.Float64() < failing {
		result.Error = pick(failures...)
	} else {
		p.leave(container.ContainerStateExited, 137, c.Name)
		started := &container.Status{
			ID:   container.ContainerID{Type: "containerd", ID: fmt.Sprint(c.Name, "-", clock.Unix())},
			Name: c.Name, Hash: container.HashContainer(c), CreatedAt: clock, StartedAt: clock,
			State: container.ContainerStateRunning,
		}
		p.runtime.ContainerStatuses = slices.Insert(p.runtime.ContainerStatuses, 0, started)
		p.runtime.ActiveContainerStatuses = append(p.runtime.ActiveContainerStatuses, started)
	}
	reasons.Update(p.pod.UID, container.PodSyncResult{SyncResults: []*container.SyncResult{&result}})
	return result.Error == nil
}

// startsWork tells whether the kubelet starts anything but native sidecars.
func (p *podState) startsWork(do podActions) bool {
	return len(do.ContainersToStart)+len(do.ContainersToReset) > 0 ||
		slices.ContainsFunc(do.InitContainersToStart, func(i int) bool { return isWork(p.pod.Spec.InitContainers[i].Name) })
}

func (p *podState) verdict(do podActions) string {
	names := p.running()
	if p.isEnding() || !slices.Contains(names, proxy) || slices.ContainsFunc(names, isWork) || p.startsWork(do) {
		return "not"
	}
	after := *p
	after.pod.UID = "" // The reasons why containers wait are kept by UID.
	after.runtime.ContainerStatuses = slices.Clone(p.runtime.ContainerStatuses)
	after.leave(container.ContainerStateExited, 0, proxy)
	for range 4 {
		do := after.sync()
		if after.isEnding() {
			return "done"
		}
		if after.startsWork(do) {
			break
		}
		after.act(do, 0)
	}
	return "not"
}

// newContainer returns a container, which in a share of cases has its own restart policy.
func newContainer(name string, share float64, own ...v1.ContainerRestartPolicy) v1.Container {
	c := v1.Container{Name: name}
	if random.Float64() >= share {
		return c
	}
	c.RestartPolicy = new(pick(own...))
	for range random.Intn(3) {
		c.RestartPolicyRules = append(c.RestartPolicyRules, v1.ContainerRestartRule{
			Action: pick(actions...),
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: pick(v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn),
				Values:   []int32{int32(pick(codes...)), int32(pick(codes...))},
			},
		})
	}
	return c
}

func newPod(uid string) *podState {
	p := &podState{}
	spec := &p.pod.Spec
	p.pod.Name, p.pod.Namespace, p.pod.UID = "x", "kubeflow", types.UID(uid)
	p.pod.Status = v1.PodStatus{Phase: v1.PodPending, StartTime: &metav1.Time{Time: clock}}
	spec.RestartPolicy = pick[v1.RestartPolicy]("Never", "Never", "Never", "Never", "OnFailure", "OnFailure", "OnFailure", "OnFailure", "Always")
	for i := range random.Intn(3) {
		spec.InitContainers = append(spec.InitContainers, pick(
			newContainer(fmt.Sprint("init-work-", i), 0.2, "Never", "OnFailure"),
			newContainer(fmt.Sprint("init-native-", i), 1, "Always"),
			newContainer(fmt.Sprint("init-native-", i), 1, "Always")))
	}
	for i := range 1 + random.Intn(3) {
		spec.Containers = append(spec.Containers, newContainer(fmt.Sprint("work-", i), 0.3, policies...))
	}
	spec.Containers = slices.Insert(spec.Containers, random.Intn(2), newContainer(proxy, 0.05, policies...))
	return p
}

// change simulates an event between two syncs of the pod.
func (p *podState) change() {
	names := p.running()
	switch chance := random.Intn(100); {
	case chance < 2:
		p.pod.DeletionTimestamp = &metav1.Time{Time: clock}
	case chance < 4:
		p.pod.Status.Phase, p.pod.Status.Reason = v1.PodFailed, "DeadlineExceeded"
	case chance < 6: // The node restarts.
		p.leave(container.ContainerStateExited, pick(137, 255), names...)
		p.setSandbox(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)
	case chance < 10 && slices.ContainsFunc(names, isWork): // The container runtime lost its state.
		p.leave(container.ContainerStateUnknown, 0, names[slices.IndexFunc(names, isWork)])
	case chance < 90 && len(names) > 0:
		if one := pick(names...); isWork(one) || chance < 30 {
			p.leave(container.ContainerStateExited, pick(codes...), one)
		}
	}
}

func main() {
	var seed int64
	var number int
	fmt.Sscan(os.Args[1], &seed)
	fmt.Sscan(os.Args[2], &number)
	random = rand.New(rand.NewSource(seed))
	klog.SetLogger(logr.Discard())
	manager, _ = newManager(ctx, runtime{}, nil, nil, nil, nil, nil)
	set("reasonCache", reasons)
	set("statusManager", status.NewManager(nil, pod.NewBasicPodManager(), nil, nil))
	set("probeManager", probes{})
	set("containerManager", cm.NewStubContainerManager())
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for printed := 0; printed < number; {
		p := newPod(fmt.Sprint("uid-", printed))
		for range min(16, number-printed) {
			do := p.sync()
			text, _ := json.Marshal(p.pod)
			fmt.Fprintf(out, "%s %s\n", p.verdict(do), text)
			printed++
			if p.isEnding() {
				break
			}
			p.act(do, 0.07)
			p.change()
		}
	}
}
