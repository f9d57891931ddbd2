"""A real oauth2-proxy, which authenticates people, and a small OpenID provider for it.

The provider follows the authorization code flow of OpenID Connect Core as far as one client needs
it.
"""

import base64
import http.server
import json
import secrets
import time
import typing
import urllib.parse

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from testbed import programs

USER = "user@example.com"
PASSWORD = "a good one"
CLIENT = "kubeflow"
CLIENT_SECRET = "known-to-both"
SESSION = "_oauth2_proxy"
IDENTITY = "kubeflow-userid"
LOGIN = "/dex/auth"
PREFIX = "/oauth2"
_FORM = """<form method="post" action="/dex/login"><input type="hidden" name="request" value="{}">
<input name="user"><input name="password" type="password"></form>"""
_KEY = rsa.generate_private_key(65537, 2048)


def command(folder, port, *flags, **provider):
    """Write the configuration of an oauth2-proxy, and return the command line that starts it.

    It answers 200 and names the user where somebody is authenticated, whatever is asked for.

    Args:
        folder: For the file.
        port: It listens there at every address.
        flags: Beside those that every test wants.
        provider: What it knows of the provider, as in its own configuration.
    """
    known = {"id": "provider", "provider": "oidc", "clientID": CLIENT, **provider}
    user = {"name": IDENTITY, "values": [{"claimSource": {"claim": "email"}}]}
    config = {
        "server": {"bindAddress": f"0.0.0.0:{port}"},
        "upstreamConfig": {"upstreams": [{"id": "all", "path": "/", "static": True}]},
        "injectResponseHeaders": [user],
        "providers": [{**known, "clientSecret": CLIENT_SECRET}],
    }
    file = folder / "oauth2-proxy.json"
    file.write_text(json.dumps(config))
    program = programs.ensure(["oauth2-proxy"])["oauth2-proxy"] / "bin" / "oauth2-proxy"
    return [
        *(str(program), f"--alpha-config={file}", f"--cookie-secret={secrets.token_hex(16)}"),
        *("--reverse-proxy", "--skip-provider-button", "--email-domain=*", *flags),
        # Otherwise a provider behind the same gateway is a loop.
        "--skip-auth-route=^/dex/",
    ]


def of_provider(address):
    """What an oauth2-proxy must know of the provider below, which the browser finds beside it."""
    keys = {"jwksURL": f"{address}/dex/keys", "skipDiscovery": True}
    known = {"loginURL": LOGIN, "redeemURL": f"{address}/dex/token"}
    return {**known, **of_issuer(f"{address}/dex", **keys)}


def of_issuer(issuer, **more):
    """What it must know of any provider."""
    claims = {"emailClaim": "email", "userIDClaim": "email", "audienceClaims": ["aud"]}
    return {"oidcConfig": {"issuerURL": issuer, **claims, **more}}


def _encoded(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _id_token(claims):
    """Write a JSON Web Token (RS256)."""
    parts = ({"alg": "RS256", "kid": "1"}, claims)
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
    signature = _KEY.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{_encoded(signature)}"


class Provider(http.server.BaseHTTPRequestHandler):
    """Shows a form, and gives a code for a password and a token for a code, each once."""

    protocol_version = "HTTP/1.1"
    requests: typing.ClassVar[dict] = {}
    codes: typing.ClassVar[dict] = {}

    def do_GET(self):
        length = int(self.headers.get("Content-Length", 0))
        address = urllib.parse.urlsplit(self.path)
        form = dict(urllib.parse.parse_qsl(self.rfile.read(length).decode() or address.query))
        try:
            self._serve(address.path.removeprefix("/dex"), form)
        except (KeyError, ValueError) as error:
            self._answer(400, f"{error!r}")

    do_POST = do_GET  # noqa: N815 (the name is http.server's)

    def _serve(self, path, form):
        if path == "/auth":
            if (form["client_id"], form["response_type"]) != (CLIENT, "code"):
                raise ValueError(form)
            number = secrets.token_urlsafe()
            self.requests[number] = form
            self._answer(200, _FORM.format(number), Content_Type="text/html")
        elif path == "/login":
            asked = self.requests[form["request"]]
            if (form["user"], form["password"]) != (USER, PASSWORD):
                self._answer(401, "wrong user or password")
                return
            del self.requests[form["request"]]
            code = secrets.token_urlsafe()
            self.codes[code] = asked.get("nonce", "")
            query = urllib.parse.urlencode({"code": code, "state": asked["state"]})
            self._answer(303, Location=f"{asked['redirect_uri']}?{query}")
        elif path == "/token":
            known = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
            if self.headers["Authorization"] != f"Basic {known}":
                self._answer(401)
                return
            issuer, now = f"http://{self.headers['Host']}/dex", int(time.time())
            claims = {"iss": issuer, "aud": CLIENT, "sub": USER, "email": USER}
            times = {"iat": now, "exp": now + 300, "nonce": self.codes.pop(form["code"])}
            token = {"access_token": "-", "token_type": "Bearer"}
            token["id_token"] = _id_token({**claims, **times, "email_verified": True})
            self._answer(200, json.dumps(token), Content_Type="application/json")
        elif path == "/keys":
            number = _KEY.public_key().public_numbers().n
            key = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "e": "AQAB"}
            key["n"] = _encoded(number.to_bytes(256))
            self._answer(200, json.dumps({"keys": [key]}), Content_Type="application/json")
        else:
            self._answer(404)

    def _answer(self, status, text="", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        """Say nothing."""
