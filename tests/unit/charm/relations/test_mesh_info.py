"""A charm that uses our library learns what our charm found."""

import ops
import pytest
from charms.istio_integrator.v0 import mesh_info
from hypothesis import given
from hypothesis import strategies as st
from ops import testing

META = {
    "name": "learner",
    "requires": {"mesh-info": {"interface": "istio_mesh_info", "limit": 1}},
}
INFO = mesh_info.MeshInfo(
    root_namespace="istio-system",
    istiod_namespace="istio-system",
    revision="default",
    version="1.31.1",
    gateway_name="kubeflow-gateway",
    gateway_namespace="kubeflow",
    gateway_workload_namespace="istio-ingress",
)


class Learner(ops.CharmBase):
    def __init__(self, framework):
        super().__init__(framework)
        self.mesh_info = mesh_info.MeshInfoRequirer(self)
        framework.observe(self.mesh_info.on.changed, self._on_changed)

    def _on_changed(self, _):
        found = self.mesh_info.get()
        self.unit.status = ops.ActiveStatus(found.revision if found else "no mesh")


def learn(event, bag):
    ctx = testing.Context(Learner, meta=META)
    relation = testing.Relation("mesh-info", remote_app_data=bag)
    state = testing.State(relations={relation})
    with ctx(getattr(ctx.on, event)(relation), state) as manager:
        out = manager.run()
        return out.unit_status.message, manager.charm.mesh_info.get()


def test_facts_arrive_with_an_event():
    assert learn("relation_changed", INFO.write()) == ("default", INFO)


def test_broken_relation_has_no_facts():
    assert learn("relation_broken", INFO.write()) == ("no mesh", None)


@pytest.mark.parametrize("bag", [{}, {"revision": "x"}, {"root_namespace": "", "revision": ""}])
def test_unknown_mesh_is_none(bag):
    assert mesh_info.MeshInfo.read(bag) is None


TEXTS = st.text(max_size=8)


@given(st.builds(mesh_info.MeshInfo, st.text(min_size=1), *[TEXTS] * 6), st.text(min_size=1))
def test_what_is_written_is_read_beside_what_is_unknown(info, extra):
    assert mesh_info.MeshInfo.read({f"later_{extra}": extra, **info.write()}) == info
