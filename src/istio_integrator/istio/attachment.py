"""Which workloads a policy applies to: by their labels, or by the Gateway that they serve.

AuthorizationPolicy, RequestAuthentication and WasmPlugin have this in common (istio
pilot/pkg/model, policyattachment.go).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from integrator_contract import names
from istio_integrator.kube import cluster


@dataclasses.dataclass(frozen=True)
class Attachment:
    """What a policy says about the workloads that it applies to."""

    namespace: str
    selector: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Labels of the workloads; empty: all of the namespace, or of the mesh."""
    targets: tuple[tuple[str, str], ...] = ()
    """Kind and name of each target. A sidecar ignores a policy that has any."""

    @classmethod
    def of(cls, obj: cluster.Object) -> Attachment:
        """Read it from a policy."""
        spec = cluster.at(obj, "spec")
        single = cluster.at(spec, "targetRef")
        references = cluster.parts(spec, "targetRefs") or ([single] if single else [])
        return cls(
            namespace=obj["metadata"].get("namespace", ""),
            selector=cluster.at(spec, "selector", "matchLabels"),
            targets=tuple((str(each.get("kind")), str(each.get("name"))) for each in references),
        )

    def includes(self, labels: Mapping[str, Any], *, namespace: str, root_namespace: str) -> bool:
        """Tell whether the policy applies to the sidecar or gateway in a pod of that kind."""
        if self.targets:
            gateway = str(labels.get(names.GATEWAY_NAME))
            return self.namespace == namespace and ("Gateway", gateway) in self.targets
        return self.namespace in (namespace, root_namespace) and all(
            labels.get(key) == value for key, value in self.selector.items()
        )
