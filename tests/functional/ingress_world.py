"""A shared gateway on loopback: a real istiod configures a real Envoy from what we apply."""

import base64
import contextlib
import dataclasses
import itertools
import json
import time

import pytest
from lightkube.config.kubeconfig import KubeConfig
from ops import testing

import charm
from integrator_contract import names
from integrator_contract.seen import EnvoyState, ReadFailure
from istio_integrator import messages
from testbed import certificates, loopback
from tests import admission_policies, charm_access, echo, gateway_client, rights, waiting
from tests import api as test_api
from tests import asked as workload_answers
from tests.functional import charm_runs, gateway_looks, loopback_istiod
from tests.functional import istiod_world as world
from tests.kubernetes_objects import endpoint_slice, made, namespace_of, pod, workload
from tests.unit.charm import charm_world
from tests.unit.charm.ingress_world import auth, route

MODEL = "ai-hammered"
DOMAIN = "cluster.local"
WEB = f"web.shop.svc.{DOMAIN}"
SECRET = "wildcard-tls"
COMPLETE = dataclasses.replace(auth(port=80), id=9)
"""The relation with the authorization service."""
SEVERITIES = {each.value for each in messages.Severity}
NETWORKING = "networking.istio.io/v1"
OURS = f"{MODEL}/kubeflow-gateway"
"""The Gateway of the model, as routes name it."""
OWN = f"{rights.APPLICATION}-gateway"
OWN_LABELS = {"istio": OWN, names.OWNER: f"{MODEL}.{rights.APPLICATION}"}
"""Of the pods of the model's own gateway."""


@contextlib.contextmanager
def being(kubeconfig, user):
    """Connect as a user with all rights, whose requests only admission can reject."""
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
    with test_api.Api(KubeConfig.from_file(kubeconfig).get(), headers) as found:
        yield found


def service(space, name, port, number=80):
    """A Service with a port of that number, whose endpoint is on this machine."""
    yield made("v1", "Service", name, space, {"ports": [{"name": "http", "port": number}]})
    yield endpoints(space, name, {"name": "http", "port": port, "protocol": "TCP"})


def endpoints(space, name, *ports):
    """The EndpointSlice of a Service whose endpoint is on this machine."""
    return endpoint_slice(name, space, world.own_address(), *ports)


def gateway_workload(ports, space=world.GATEWAY_NAMESPACE, labels=world.LABELS, name="gateway"):
    """Yield a gateway's Deployment and Service, whose target ports are those of Envoy."""
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


def gateway(space, name, *servers, labels=world.LABELS):
    """A Gateway on the shared workload, or on a workload with other labels."""
    spec = {"selector": labels, "servers": list(servers)}
    return made(NETWORKING, "Gateway", name, space, spec)


def lead(host, **more):
    """One destination of a route, the whole of the traffic."""
    return [{"destination": {"host": host, "port": {"number": 80}}, **more}]


def to(host, prefix="/", **more):
    """An entry of routes that leads below a prefix."""
    return {"match": [{"uri": {"prefix": prefix}}], "route": lead(host), **more}


def virtual_service(space, name, gateways, hosts, *routes, **more):
    """A VirtualService with these entries."""
    spec = {"gateways": list(gateways), "hosts": list(hosts), "http": list(routes), **more}
    return made(NETWORKING, "VirtualService", name, space, spec)


def tenant():
    """Yield the Gateway and the VirtualService of a tenant with a host of its own."""
    yield gateway("shop", "web", server(80, [gateway_client.TENANT]))
    yield virtual_service(
        "shop", "web", ["shop/web"], [gateway_client.TENANT], {"route": lead(WEB)}
    )


def notebook():
    """A tenant's route on our Gateway."""
    return virtual_service("shop", "notebook", [OURS], ["*"], to(WEB, "/notebook/"))


def frozen(_=0):
    """A neighbour's route that Envoy refuses, and all routes of the port with it."""
    route = {"match": [{"uri": {"regex": r"/x\x{100}"}}], "route": lead(WEB)}
    return virtual_service("shop", "frozen", ["shop/web"], [gateway_client.TENANT], route)


def request(number, name, prefix, rewrite):
    """The relation of an application that requests a route by `ingress`."""
    more = {"rewrite": rewrite} if rewrite else {}
    return dataclasses.replace(route(name, port=80, prefix=prefix, **more), id=number)


def forward(address, *headers):
    """The relation with an authorization service of the newer interface, which names headers."""
    bag = {"decisions_address": address, "app_names": "[]", "headers": json.dumps(headers)}
    endpoint = "forward-auth"
    return testing.Relation(endpoint, id=7, remote_app_name="oauth2-proxy", remote_app_data=bag)


class Place:
    """A model with the charm, as relations and options make it.

    Another team's gateway is named, unless options say `gateway_service=""` or that istiod deploys
    one.
    """

    def __init__(self, client, api, ports, application, asked, *, model=MODEL):
        self.ctx = testing.Context(charm.IstioIntegrator)
        self.client = client
        """With which the charm connects."""
        self.api = api
        self.model = model
        self.port, self.https_port, self.admin = ports
        self.application = application
        self.asked = asked
        self.options = {"hosts": gateway_client.HOST}
        self.requests, self.auths, self.forwards, self.newer = [], [], [], []
        """Relations, by interface."""
        self.kept, self.secrets = [], set()
        """Relations whose data bags stay from hook to hook, and the charm's Juju secrets."""
        self.told = {}
        """The charm's data bag, by endpoint."""
        self.expected = None
        """The gateway configuration that the charm has told the workload to expect."""

    def hook(self, event=None, units=1):
        """Run the charm for an event; all that it says comes back, each with its severity."""
        options = {"gateway_service": f"{world.GATEWAY_NAMESPACE}/gateway", **self.options}
        if options.get("routing") == "gateway-api":
            options["gateway_service"] = ""
        relations = {*self.requests, *self.auths, *self.forwards, *self.newer, *self.kept}
        given = charm_world.state(units=units, **options)
        given = dataclasses.replace(
            given,
            relations=relations,
            secrets=self.secrets,
            model=testing.Model(self.model, type="kubernetes"),
        )
        self.ctx.juju_log.clear()
        with pytest.MonkeyPatch.context() as patch:
            charm_access.connect(patch, self.client)
            patch.setattr(workload_answers.SERVICE, "look", self.look)
            out = self.ctx.run(event or self.ctx.on.config_changed(), given)
        self.told = {each.endpoint: each.local_app_data for each in out.relations}
        self.kept = [out.get_relation(each.id) for each in self.kept]
        self.secrets = out.secrets if self.kept else set()
        if units:
            self.expected = charm_world.results(self.ctx, out).expected
        logged = [line.message for line in self.ctx.juju_log]
        return [each for each in logged if each.partition(": ")[0] in SEVERITIES]

    def diagnosed(self):
        """The rows of what the action `diagnose` reports."""
        with contextlib.suppress(testing.ActionFailed):
            self.hook(self.ctx.on.action("diagnose", params={"format": "json"}))
        return json.loads(self.ctx.action_results["report"])

    def remove(self):
        """Remove the last unit."""
        self.hook(self.ctx.on.remove(), units=0)
        self.expected = None

    def reconcile(self):
        """Do what hooks do until the gateway is as it stays; what the last says comes back."""
        for number in range(4):
            before, said = self.expected, self.hook()
            # The first hook may have looked before Envoy had what it is to have.
            if number and self.expected == before:
                break
            if self.expected:
                gateway_looks.look_at_whole(self.expected, self.admin)
        return said

    def look(self):
        """Return the workload's report about the gateway."""
        if self.expected is None:
            return EnvoyState(of="")
        return gateway_looks.look(
            self.expected, lambda answer: answer.unseen is not ReadFailure.NOT_YET, self.admin
        )

    def owned(self, *kinds):
        """List the objects that the charm wrote, of some kinds or of all."""
        return charm_runs.owned(self.api, self.model, *kinds)

    def analyzed(self, folder):
        """Run `istioctl analyze` on the objects of the charm and those to which they refer."""
        place = world.GATEWAY_NAMESPACE
        proxy = {"name": "istio-proxy", "image": "proxy"}
        objects = [
            namespace_of(self.model, **{"istio-injection": "enabled"}),
            pod("gateway-0", place, {"labels": world.LABELS}, containers=[proxy]),
            *self.api.list("Service", self.model),
            *self.api.list("Service", place),
            *(each for each in self.owned() if not each["metadata"]["name"].endswith("-record")),
        ]
        done = world.istioctl(folder, objects, "analyze", "--use-kube=false", "-A")
        return done.stdout + done.stderr

    def visitor(self, *, tls=""):
        """A client of the gateway; with `tls` by HTTPS, with that name as SNI."""
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

    def status(self, path="/kfp/x", **given):
        """Return the status of a request; 0 without an answer."""
        return getattr(self.asked_once(path, **given), "status", 0)

    def eventually(self, want, path="/kfp/x", **given):
        """Ask until an answer is as it should be, and return it.

        A connection stays with the Gateway that was there for it when it began.
        """
        deadline = time.monotonic() + 60
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
    world.install_definitions(client)
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(test_api.Api(KubeConfig.from_file(kubeconfig).get()))
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
        stack.callback(leave, api, *spaces)
        for obj in (
            *map(namespace_of, spaces),
            *service("shop", "web", theirs.server_port),
            *itertools.chain(*backends.values()),
        ):
            api.create(obj)
        # After istiod, which listens at a port of its own choice, too.
        found = Place(client, api, loopback.free_ports(3), application.asked, authorization.asked)
        found.xds, found.backends, found.theirs = xds, backends, theirs.asked
        found.istiod = int((folder / "debug.port").read_text())
        found.requests = [
            request(1, "dashboard", "/", "/"),
            request(2, "kfp", "/kfp", None),
            request(3, "dashboard", "/kfp/nested", "/deep"),
        ]
        found.auths = [COMPLETE]
        with found.there(*installation()):
            yield found


@contextlib.contextmanager
def serving(client, kubeconfig, folder, more=(), **parts):
    """Run another team's gateway, too, with a neighbour's route; `furnished` has the rest.

    `restart` of the place starts the gateway again.
    """
    spaces = (world.GATEWAY_NAMESPACE,)
    with (
        furnished(client, kubeconfig, folder, more, spaces, **parts) as found,
        contextlib.ExitStack() as running,
    ):
        ports = (("http2", 80, found.port), ("https", 443, found.https_port))
        for obj in (*gateway_workload(ports), *tenant(), secret(folder)):
            found.api.create(obj)
        token = world.gateway_token(client)

        def restart():
            running.close()
            running.enter_context(world.gateway(folder, found.xds, found.admin, token))
            found.eventually(200, "/", host=gateway_client.TENANT)

        found.restart = restart
        restart()
        yield found


def units_of(model):
    """The StatefulSet as which Juju runs an integrator."""
    return workload("StatefulSet", rights.APPLICATION, model, {"app": rights.APPLICATION})


@contextlib.contextmanager
def beside(place, name="beside"):
    """Another model at the named gateway, by an integrator and relations of its own."""
    model = f"{MODEL}-{name}"
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(echo.serving(echo.Application))
        decides = stack.enter_context(echo.serving(echo.Authorization))
        for obj in (
            namespace_of(model),
            units_of(model),
            *service(model, "mlflow", served.server_port),
            *service(model, "oidc", decides.server_port),
        ):
            place.api.create(obj)
        stack.callback(place.api.delete, namespace_of(model))
        ports = (place.port, place.https_port, place.admin)
        asked = served.asked, decides.asked
        found = Place(place.client, place.api, ports, *asked, model=model)
        found.istiod = place.istiod
        found.requests = [request(21, "mlflow", "/mlflow", None)]
        found.auths = [COMPLETE]
        yield found
        found.remove()


def installation():
    """The objects by which the charm finds Istio; its injector has no pod and does not answer."""
    kept = ("MutatingWebhookConfiguration", "Deployment")
    return [obj for (kind, _), obj in loopback_istiod.render().items() if kind in kept]


@contextlib.contextmanager
def own_gateway(place, folder):
    """Run the Envoy of the model's own gateway, and send requests there while the block runs."""
    named = place.port, place.https_port, place.admin
    ports = loopback.free_ports(3)
    token = world.gateway_token(place.client, MODEL)
    about = {"namespace": MODEL, "labels": OWN_LABELS}
    with own_ports(place, *ports[:2]), world.gateway(folder, place.xds, ports[2], token, **about):
        place.port, place.https_port, place.admin = ports
        yield
        place.port, place.https_port, place.admin = named


@contextlib.contextmanager
def own_ports(place, plain, secure):
    """Replace 8080 and 8443 in the own gateway's objects by ports that are free here."""
    patch = f"""object.kind == "Service" ? [
        JSONPatch{{op: "replace", path: "/spec/ports/1/targetPort", value: {plain}}},
        JSONPatch{{op: "replace", path: "/spec/ports/2/targetPort", value: {secure}}}
    ] : [JSONPatch{{
        op: "replace",
        path: "/spec/rules/0/to/0/operation/notPorts",
        value: ["{plain}", "{secure}"]
    }}]"""
    rule = {
        "apiGroups": ["", "security.istio.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["services", "authorizationpolicies"],
    }
    about = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "own", "expression": f"object.metadata.name == '{OWN}'"}],
    }
    numbers = [{"name": f"port-{number}", "port": number} for number in (15021, 80, 443)]
    spec = {"rules": [{"to": [{"operation": {"notPorts": ["1"]}}]}]}
    ports = made("v1", "Service", OWN, place.model, {"ports": numbers})
    policy = made("security.istio.io/v1", "AuthorizationPolicy", OWN, place.model, spec)

    def is_in_force():
        try:
            place.api.create(policy, dry_run=True)
            created = place.api.create(ports, dry_run=True)
        except test_api.ApiError:
            return False
        return created["spec"]["ports"][1]["targetPort"] == plain

    with place.there(*admission_policies.mutating("own-ports", patch, **about)):
        # The API server learns each five seconds which kinds it can patch.
        assert waiting.eventually(is_in_force)
        yield


def unserved(client, api, model):
    """A model with a route but without an Envoy; its routes count as removed at once."""
    found = Place(client, api, (0, 0, 0), [], [], model=model)
    found.requests = [request(1, "dashboard", "/", None)]
    found.look = lambda: EnvoyState(of="", unseen=None)
    return found


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
    assert waiting.eventually(lambda: not any(api.get("Namespace", name) for name in names))
