"""A sidecar's way in: what a real istiod makes of policies, in a real Envoy, with mutual TLS.

istiod's configuration asks pilot-agent for certificates, which is not there. So one Envoy is given
the configuration, and another one serves it with certificates of files in the same places.
"""

import contextlib
import http.client
import json
import re
import ssl

from testbed import certificates, loopback
from tests import waiting
from tests.functional import ingress_world, istiod_world
from tests.kubernetes_objects import made

ALPN = "istio-http/1.1"
"""The ALPN protocol by which a sidecar recognises Istio's proxies."""


class Authority(certificates.Authority):
    """Signs for ServiceAccounts, as istiod does."""

    @property
    def root(self):
        """The file of its own certificate."""
        return self.pair.certificate

    def certificate(self, namespace, account, domain="cluster.local"):
        """The files of a certificate and its key, with the name of a ServiceAccount."""
        identity = f"spiffe://{domain}/ns/{namespace}/sa/{account}"
        stem = f"{domain}-{namespace}-{account}"
        pair = self.server(stem, [], ["127.0.0.1"], identity)
        return pair.certificate, pair.key


def sidecar(namespace, name, labels, port, application):
    """Istio's own word for a proxy that binds its ports, since nothing redirects to it here."""
    entry = {
        "port": {"number": port, "protocol": "HTTP", "name": "http"},
        "bind": "0.0.0.0",
        "captureMode": "NONE",
        "defaultEndpoint": f"127.0.0.1:{application}",
    }
    spec = {"workloadSelector": {"labels": labels}, "ingress": [entry]}
    return made(ingress_world.NETWORKING, "Sidecar", name, namespace, spec)


@contextlib.contextmanager
def configured(folder, xds, name, namespace, labels, *, token="", interception="NONE"):
    """Run an Envoy that istiod configures as a sidecar; the port of its administration comes back.

    Nobody gives it certificates.
    """
    admin, nobody = loopback.free_ports(2)
    node = istiod_world.proxy("sidecar", name, namespace, labels, INTERCEPTION_MODE=interception)
    secrets = istiod_world.static_cluster("sds-grpc", nobody)
    with istiod_world.envoy_of(folder, xds, admin, node, token, more=[secrets]):
        yield admin


def listeners(admin, ports):
    """The listeners at some ports that an Envoy has been given, by port.

    They wait for the certificates of pilot-agent, which never come.
    """
    dump = "config_dump?resource=dynamic_listeners"
    dumped = json.loads(istiod_world.administration(admin, dump))
    given = {}
    for each in dumped.get("configs", ()):
        for state in ("active_state", "error_state", "warming_state"):
            found = each.get(state, {})
            one = found.get("listener") or found.get("failed_configuration")
            if one and _port(one) in ports:
                one.pop("@type", None)
                given[_port(one)] = one
    return given


def _port(one):
    return one.get("address", {}).get("socket_address", {}).get("port_value")


def with_files(value, chain, key, root):
    """Put certificates of files where istiod's configuration asks for some."""
    if isinstance(value, list):
        return [with_files(each, chain, key, root) for each in value]
    if not isinstance(value, dict):
        return value
    made = {name: with_files(each, chain, key, root) for name, each in value.items()}
    if made.pop("tls_certificate_sds_secret_configs", None):
        pair = {
            "certificate_chain": {"filename": str(chain)},
            "private_key": {"filename": str(key)},
        }
        made["tls_certificates"] = [pair]
    combined = made.pop("combined_validation_context", None)
    if combined is not None:
        known = combined.get("default_validation_context", {})
        made["validation_context"] = {**known, "trusted_ca": {"filename": str(root)}}
    return made


@contextlib.contextmanager
def serving(folder, served, application):
    """Envoy with those listeners alone, before an application."""
    admin = loopback.free_port()
    names = sorted(set(re.findall(r"inbound\|[^\"']*", str(served))))
    clusters = [istiod_world.static_cluster(name, application, is_http2=False) for name in names]
    bootstrap = {
        "node": {"id": "served", "cluster": "served"},
        "static_resources": {"listeners": served, "clusters": clusters},
    }
    with istiod_world.envoy_with(folder, "served", admin, bootstrap):
        is_ready = waiting.eventually(lambda: istiod_world.administration(admin, "ready"))
        assert is_ready, (folder / "served.log").read_text()
        yield


def ask(
    port,
    *,
    address="127.0.0.1",
    source="127.0.0.1",
    protocol=ALPN,
    pair=None,
    path="/",
    method="GET",
    headers=(),
):
    """Ask a sidecar; the status, or 0 where the connection is ended.

    Without a pair, the files of a certificate and its key, in plain text. Headers are pairs, of
    which a name may be there twice.
    """
    connection = http.client.HTTPConnection(address, port, timeout=10, source_address=(source, 0))
    try:
        connection.connect()
        if pair:
            # Without the roots of the system, which take longer to read than the answer takes.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.set_alpn_protocols([protocol])
            context.load_cert_chain(*pair)
            connection.sock = context.wrap_socket(connection.sock)
        connection.putrequest(method, path, skip_host="Host" in dict(headers))
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
