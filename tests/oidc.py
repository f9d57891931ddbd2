"""A real oauth2-proxy, which authenticates people and machines, and a provider for machines."""

import base64
import contextlib
import dataclasses
import json
import secrets

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from testbed import programs
from tests import echo

SESSION = "_oauth2_proxy"
PREFIX = "/oauth2"
CLIENT = "kubeflow"
"""The client of the provider, which tokens have as their audience."""
MACHINE = "ci@example.com"


def command(folder, port, *flags, **provider):
    """Write the configuration of an oauth2-proxy, and return the command line that starts it.

    It answers 200 and names the user where somebody is authenticated, whatever is asked for.
    """
    about = {"id": "provider", "provider": "oidc", "clientID": CLIENT}
    user = {"name": "kubeflow-userid", "values": [{"claimSource": {"claim": "email"}}]}
    config = {
        "server": {"bindAddress": f"0.0.0.0:{port}"},
        "upstreamConfig": {"upstreams": [{"id": "all", "path": "/", "static": True}]},
        "injectResponseHeaders": [user],
        "providers": [{**about, "clientSecret": "known-to-both", **provider}],
    }
    file = folder / "oauth2-proxy.json"
    file.write_text(json.dumps(config))
    return [
        *(program(), f"--alpha-config={file}", f"--cookie-secret={secrets.token_hex(16)}"),
        *("--reverse-proxy", "--skip-provider-button", "--email-domain=*", *flags),
    ]


def of_issuer(issuer, **more):
    """The provider's configuration."""
    claims = {"emailClaim": "email", "userIDClaim": "email", "audienceClaims": ["aud"]}
    return {"oidcConfig": {"issuerURL": issuer, **claims, **more}}


def program():
    """Build oauth2-proxy if it is missing, and return its path."""
    return str(programs.ensure(["oauth2-proxy"])["oauth2-proxy"] / "bin" / "oauth2-proxy")


def of_charm(port, issuer):
    """Return the variables with which oauth2-proxy-k8s 2.1 starts it, with bearer tokens on."""
    said = {
        "HTTP_ADDRESS": f"0.0.0.0:{port}",
        "CLIENT_ID": CLIENT,
        "CLIENT_SECRET": "known-to-both",
        "COOKIE_SECRET": secrets.token_hex(16),
        "PROVIDER": "oidc",
        "OIDC_ISSUER_URL": issuer,
        "REDIRECT_URL": "https://kubeflow.example.com/oauth2/callback",
        "EMAIL_DOMAINS": "*",
        "SET_XAUTHREQUEST": "true",
        "REVERSE_PROXY": "true",
        "UPSTREAMS": "static://200",
        "SKIP_PROVIDER_BUTTON": "true",
        "SKIP_JWT_BEARER_TOKENS": "true",
        "EXTRA_JWT_ISSUERS": f"{issuer}={CLIENT}",
        "BEARER_TOKEN_LOGIN_FALLBACK": "false",
    }
    return {f"OAUTH2_PROXY_{name}": value for name, value in said.items()}


class _Provider(echo.Application):
    """Publishes the addresses and the key of an OpenID provider."""

    def decide(self, headers):
        return 200, {"Content-Type": "application/json"}

    def show(self, asked, sent):
        if asked["path"] == "/keys":
            return json.dumps({"keys": [self.server.key]})
        url = f"http://{asked['headers']['host']}"
        endpoints = {f"{name}_endpoint": f"{url}/{name}" for name in ("authorization", "token")}
        algorithms = {"id_token_signing_alg_values_supported": ["RS256"]}
        return json.dumps({"issuer": url, "jwks_uri": f"{url}/keys", **endpoints, **algorithms})


@dataclasses.dataclass(frozen=True)
class Issuer:
    """A provider that signs tokens."""

    url: str
    key: rsa.RSAPrivateKey

    def token(self, *, key=None, algorithm="RS256", **changed):
        """Sign a token, by default with the published key; a claim of None is left out."""
        claims = {"iss": self.url, "aud": CLIENT, "sub": "pipeline-7", "email": MACHINE}
        claims = {**claims, "email_verified": True, "iat": 0, "exp": 2**33, **changed}
        claims = {name: value for name, value in claims.items() if value is not None}
        head = {"alg": algorithm, "kid": "first", "typ": "JWT"}
        text = ".".join(_encoded(json.dumps(each).encode()) for each in (head, claims))
        signed = (key or self.key).sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_encoded(signed)}"


def new_key():
    """Make a key that signs tokens."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@contextlib.contextmanager
def issuing():
    """Run a provider on this machine while the block runs."""
    key = new_key()
    numbers = key.public_key().public_numbers()
    parts = {"n": _encoded(numbers.n.to_bytes(256)), "e": _encoded(numbers.e.to_bytes(3))}
    with echo.serving(_Provider, address="127.0.0.1") as server:
        server.key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "first", **parts}
        yield Issuer(f"http://127.0.0.1:{server.server_port}", key)


def _encoded(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
