"""A shared gateway on loopback: a real istiod configures a real Envoy from what we apply."""

import base64
import contextlib
import dataclasses
import itertools
import time

import lightkube
from lightkube.config.kubeconfig import KubeConfig

from integrator_contract.seen import Unseen
from istio_integrator.ingress import gateway as gateways
from istio_integrator.ingress import ingress
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.relations import kubeflow
from testbed import certificates, loopback
from tests import echo, gateway_client, shown, waiting
from tests.functional import charm_parts, gateway_looks, loopback_istiod
from tests.functional import istiod_world as world
from tests.kubernetes_objects import endpoint_slice, made, namespace_of, pod, workload

MODEL = "ai-hammered"
DOMAIN = "cluster.local"
WEB = f"web.shop.svc.{DOMAIN}"
SECRET = "wildcard-tls"
AUTH = kubeflow.AuthRequest(
    service="oidc",
    port=80,
    allowed_request_headers=("cookie",),
    allowed_response_headers=("kubeflow-userid",),
)
COMPLETE = kubeflow.Received(9, "oidc", AUTH)


NETWORKING = "networking.istio.io/v1"
OURS = f"{MODEL}/kubeflow-gateway"
"""The Gateway of the model, as routes name it."""


@contextlib.contextmanager
def being(kubeconfig, user):
    """The API server as a user who may do everything, but for policies."""
    with lightkube.Client(config=KubeConfig.from_file(kubeconfig).get()) as client:
        client._client._client.headers.update(
            {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        )
        yield charm_cluster.Cluster(client)


def service(space, name, port, number=80):
    """A Service with a port of that number, whose endpoint is on this machine."""
    yield made("v1", "Service", name, space, {"ports": [{"name": "http", "port": number}]})
    yield endpoints(space, name, {"name": "http", "port": port, "protocol": "TCP"})


def endpoints(space, name, *ports):
    """The EndpointSlice of a Service whose endpoint is on this machine."""
    return endpoint_slice(name, space, world.own_address(), *ports)


def gateway_workload(ports, space=world.GATEWAY_NAMESPACE, labels=world.LABELS, name="gateway"):
    """What makes Envoy the gateway workload: its Service's ports are those that Envoy opens."""
    container = {"name": "istio-proxy", "image": "proxy", "args": ["proxy", "router"]}
    yield workload("Deployment", name, space, labels, containers=[container])
    listed = [{"name": port, "port": number, "targetPort": to} for port, number, to in ports]
    yield made("v1", "Service", name, space, {"selector": labels, "ports": listed})


def server(port, hosts, **tls):
    """A server of a Gateway; with TLS it is HTTPS unless it only redirects."""
    secure = tls and "httpsRedirect" not in tls
    protocol = "HTTPS" if secure else "HTTP"
    said = {"port": {"number": port, "name": f"{protocol.lower()}-{port}", "protocol": protocol}}
    return {**said, "hosts": list(hosts), **({"tls": tls} if tls else {})}


HTTPS = {"mode": "SIMPLE", "credentialName": SECRET}


def gateway(space, name, *servers):
    """Somebody's Gateway on the shared workload."""
    spec = {"selector": world.LABELS, "servers": list(servers)}
    return made(NETWORKING, "Gateway", name, space, spec)


def lead(host, **more):
    """One destination of a route, the whole of the traffic."""
    return [{"destination": {"host": host, "port": {"number": 80}}, **more}]


def to(host, prefix="/", **more):
    """An entry of routes that leads below a prefix."""
    return {"match": [{"uri": {"prefix": prefix}}], "route": lead(host), **more}


def virtual_service(space, name, gateways, hosts, *routes, **more):
    """Somebody's routes."""
    spec = {"gateways": list(gateways), "hosts": list(hosts), "http": list(routes), **more}
    return made(NETWORKING, "VirtualService", name, space, spec)


def tenant():
    """The Gateway and the route of a neighbour whom nothing of ours concerns."""
    yield gateway("shop", "web", server(80, [gateway_client.TENANT]))
    yield virtual_service(
        "shop",
        "web",
        ["shop/web"],
        [gateway_client.TENANT],
        {"route": lead(WEB)},
    )


def notebook():
    """A tenant's route on our Gateway."""
    return virtual_service("shop", "notebook", [OURS], ["*"], to(WEB, "/notebook/"))


def frozen(_=0):
    """A neighbour's route that Envoy refuses, and all routes of the port with it."""
    route = {"match": [{"uri": {"regex": r"/x\x{100}"}}], "route": lead(WEB)}
    return virtual_service("shop", "frozen", ["shop/web"], [gateway_client.TENANT], route)


def request(number, name, prefix, rewrite):
    """What an application asks for on the ingress relation."""
    message = kubeflow.IngressRequest(service=name, port=80, prefix=prefix, rewrite=rewrite)
    return kubeflow.Received(number, name, message)


class Standing:
    """The model's own gateway, in whose place the test runs one."""

    def __init__(self, scope, name, space, labels):
        self._hosts = scope.config.hosts
        self._about = {"namespace": space, "selector": labels, "service": name, "workload": name}

    def target(self):
        """Describe it as the charm describes its own."""
        return gateways.Target(
            **self._about,
            http_port=80,
            https_port=443,
            hosts=self._hosts,
            ready=True,
            account="gateway",
            is_own=True,
        )

    def apply(self):
        """Make nothing: it is there."""


class Place(charm_parts.Related):
    """The charm's part, as relations and options make it.

    Another team's gateway is named, unless options say `gateway_service=""` or that istiod deploys
    one.
    """

    def __init__(self, api, ports, application, asked, model=MODEL):
        super().__init__()
        self.api = api
        self.model = model
        self.port, self.https_port, self.admin = ports
        self.application = application
        self.asked = asked
        self.options = {"hosts": gateway_client.HOST}
        self.own = ("gateway", world.GATEWAY_NAMESPACE, world.LABELS)
        """Name, namespace and labels of what is the model's own gateway."""
        self.expected = None
        """What the workload expects the gateway to have."""

    def part(self):
        """The part of the charm that serves the model."""
        options = {"gateway_service": f"{world.GATEWAY_NAMESPACE}/gateway", **self.options}
        if options.get("routing") == "gateway-api":
            options["gateway_service"] = ""
        mesh = dataclasses.replace(charm_parts.MESH, version=world.ISTIO_VERSION)
        scope = charm_parts.context(self.api, self.model, mesh=mesh, related=self, **options)
        made = ingress.Ingress(scope, look=self.look)
        if not options["gateway_service"]:
            made._own_gateway = Standing(scope, *self.own)
        return made

    def remove(self):
        """Do what hooks do at the end."""
        self.part().remove()
        self.expected = None

    def reconcile(self):
        """Do what hooks do until the gateway is as it stays; the last status comes back."""
        for _ in range(4):
            tried = self.part()
            said = tried.reconcile()
            before, self.expected = self.expected, tried.expected
            if self.expected:
                gateway_looks.look_at_whole(self.expected, self.admin)
            if self.expected == before:
                break
        return [status.message for status in shown.statuses(said)]

    def look(self):
        """What the workload sees of the gateway."""
        if self.expected is None:
            return None
        return gateway_looks.look(
            self.expected, lambda answer: answer.unseen is not Unseen.NOT_YET, self.admin
        )

    def analyzed(self, folder):
        """What `istioctl analyze` says about what the charm wrote, beside what that names."""
        place = world.GATEWAY_NAMESPACE
        proxy = {"name": "istio-proxy", "image": "proxy"}
        objects = [
            namespace_of(self.model, **{"istio-injection": "enabled"}),
            pod("gateway-0", place, {"labels": world.LABELS}, containers=[proxy]),
            *self.api.list(charm_cluster.SERVICE, self.model),
            *self.api.list(charm_cluster.SERVICE, place),
            *(
                each
                for each in self.part()._situation.manifests.owned()
                if each["kind"] != "Secret"
            ),
            self.api.get(charm_cluster.SECRET, SECRET, place),
        ]
        done = world.istioctl(folder, objects, "analyze", "--use-kube=false", "-A")
        return done.stdout + done.stderr

    def visitor(self, *, tls=""):
        """Somebody who asks; with `tls` by HTTPS, at that name."""
        if tls:
            return gateway_client.Client(port=self.https_port, tls=True, name=tls)
        return gateway_client.Client(port=self.port)

    @contextlib.contextmanager
    def there(self, *objects):
        """Objects that are there while the block runs."""
        with contextlib.ExitStack() as made:
            for obj in objects:
                made.callback(self.api.delete, self.api.create(obj))
            yield

    @contextlib.contextmanager
    def without(self, *objects):
        """Objects that are gone while the block runs."""
        with contextlib.ExitStack() as deleted:
            for obj in objects:
                self.api.delete(obj)
                deleted.callback(self.api.create, obj)
            yield

    def asked_once(self, path="/kfp/x", *, tls="", **headers):
        """Ask on a connection of its own; an answer or why there is none."""
        with contextlib.closing(self.visitor(tls=tls)) as visitor:
            try:
                return visitor.get(path, **headers)
            except OSError as error:
                return error

    def eventually(self, want, path="/kfp/x", **given):
        """Ask until an answer is as it should be, and return it.

        A connection stays with the Gateway that was there for it when it began.
        """
        deadline = time.monotonic() + 20
        while getattr(got := self.asked_once(path, **given), "status", 0) != want:
            assert time.monotonic() < deadline, got
            time.sleep(0.1)
        return got


@contextlib.contextmanager
def furnished(
    client, kubeconfig, folder, more, spaces, *, decides=echo.Authorization, istiod=world.istiod
):
    """Run istiod, with applications, a service to ask and a neighbour's web; nothing serves yet.

    `more` are ports of further Services in the model, and `decides` handles what the service is
    asked.
    """
    api = world.install_definitions(client)
    with contextlib.ExitStack() as stack:
        application = stack.enter_context(echo.serving(echo.Application))
        theirs = stack.enter_context(echo.serving(echo.Application))
        authorization = stack.enter_context(echo.serving(decides))
        loopback_istiod.create_namespace(api)
        xds = stack.enter_context(istiod(folder, kubeconfig))
        spaces = (*spaces, "shop", MODEL)
        ports = {"kfp": application, "dashboard": application, "oidc": authorization}
        ports = {name: server.server_port for name, server in ports.items()}
        backends = {
            name: [*service(MODEL, name, port)] for name, port in {**ports, **dict(more)}.items()
        }
        for obj in (
            *map(namespace_of, spaces),
            *service("shop", "web", theirs.server_port),
            *itertools.chain(*backends.values()),
        ):
            api.create(obj)
        stack.callback(leave, api, *spaces)
        # After istiod, which listens at a port of its own choice, too.
        found = Place(api, loopback.free_ports(3), application.asked, authorization.asked)
        found.xds, found.backends, found.theirs = xds, backends, theirs.asked
        found.requests = [
            request(1, "dashboard", "/", "/"),
            request(2, "kfp", "/kfp", None),
            request(3, "dashboard", "/kfp/nested", "/deep"),
        ]
        found.auths = [COMPLETE]
        yield found


@contextlib.contextmanager
def serving(client, kubeconfig, folder, more=(), **parts):
    """Run another team's gateway, too, with a neighbour's route; `furnished` has the rest."""
    spaces = (world.GATEWAY_NAMESPACE,)
    with furnished(client, kubeconfig, folder, more, spaces, **parts) as found:
        ports = (("http2", 80, found.port), ("https", 443, found.https_port))
        for obj in (*gateway_workload(ports), *tenant(), secret(folder)):
            found.api.create(obj)
        token = world.gateway_token(client)
        with world.gateway(folder, found.xds, found.admin, token):
            found.eventually(200, "/", host=gateway_client.TENANT)
            yield found


def secret(folder, space=world.GATEWAY_NAMESPACE):
    """The certificate that every Gateway shows, of whichever name."""
    pair = certificates.Authority(folder / "pki").server("gateway", ["*.example.com"], [])
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    encoded = {name: base64.b64encode(path.read_bytes()).decode() for name, path in data.items()}
    kind = "kubernetes.io/tls"
    return made("v1", "Secret", SECRET, space, type=kind, data=encoded)


def leave(api, *names):
    """Wait until all is gone: Gateways of any namespace are bound to a workload by its labels."""
    for name in names:
        api.delete(namespace_of(name))
    assert waiting.eventually(
        lambda: not any(api.get(charm_cluster.NAMESPACE, name) for name in names)
    )
