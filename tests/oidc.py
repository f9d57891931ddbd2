"""A small OpenID provider and the authorization service that uses it, for a real login.

The provider follows the authorization code flow of OpenID Connect Core as far as one client needs
it; the service behaves as oidc-authservice does behind an ingress. The standard library is enough:
end-to-end tests run this file inside of pods.
"""

import argparse
import base64
import hashlib
import hmac
import http.cookies
import http.server
import json
import re
import secrets
import time
import typing
import urllib.parse
import urllib.request

USER = "user@example.com"
PASSWORD = "a good one"
CLIENT = "authservice"
CLIENT_SECRET = "known to both"
SESSION = "authservice_session"
STATE = "authservice_state"
PROVIDER_PREFIX = "/dex"
SERVICE_PREFIX = "/authservice"
IDENTITY = "kubeflow-userid"
_FORM = """<form method="post" action="/dex/login"><input type="hidden" name="request" value="{}">
<input name="user"><input name="password" type="password"></form>"""


def _encoded(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _signature(signed):
    return _encoded(hmac.digest(CLIENT_SECRET.encode(), signed.encode(), hashlib.sha256))


def id_token(claims):
    """Write a JSON Web Token, signed with the client's secret (HS256)."""
    parts = ({"alg": "HS256", "typ": "JWT"}, claims)
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{_signature(signed)}"


def claims_of(token, issuer=""):
    """Read a token; ValueError when it is not the provider's or not good any more.

    The signature is by the client's secret. With an issuer that is found by discovery, it is left
    to the connection that the token came by (OpenID Connect Core 3.1.3.7, point 6).
    """
    signed, _, signature = token.rpartition(".")
    if not issuer and not hmac.compare_digest(signature, _signature(signed)):
        raise ValueError("signature")
    text = signed.partition(".")[2]
    claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    audience = [claims["aud"]] if isinstance(claims["aud"], str) else claims["aud"]
    if CLIENT not in audience or claims["exp"] < time.time():
        raise ValueError("audience or time")
    if claims.get("iss", "") != issuer:
        raise ValueError("issuer")
    return claims


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        length = int(self.headers.get("Content-Length", 0))
        address = urllib.parse.urlsplit(self.path)
        text = self.rfile.read(length).decode() or address.query
        form = dict(urllib.parse.parse_qsl(text))
        try:
            self.serve(address.path, form)
        except (KeyError, ValueError, OSError) as error:
            self.answer(400, f"{error!r}")

    do_POST = do_GET  # noqa: N815 (the name is http.server's)

    def answer(self, status, text="", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def cookie(self, name):
        found = http.cookies.SimpleCookie(self.headers.get("Cookie", ""))
        return found[name].value if name in found else ""

    def log_message(self, *_):
        """Say nothing."""


class Provider(_Handler):
    """Shows a form, and gives a code for a password and a token for a code, each once."""

    requests: typing.ClassVar[dict] = {}
    codes: typing.ClassVar[dict] = {}

    def serve(self, path, form):
        """Answer one of the three addresses of the flow."""
        if path == f"{PROVIDER_PREFIX}/auth" and form["client_id"] == CLIENT:
            if form["response_type"] != "code" or not form["redirect_uri"].startswith("/"):
                raise ValueError(form)
            number = secrets.token_urlsafe()
            self.requests[number] = form
            self.answer(200, _FORM.format(number), Content_Type="text/html")
        elif path == f"{PROVIDER_PREFIX}/login":
            asked = self.requests[form["request"]]
            if (form["user"], form["password"]) != (USER, PASSWORD):
                self.answer(401, "wrong user or password")
                return
            del self.requests[form["request"]]
            code = secrets.token_urlsafe()
            self.codes[code] = asked["nonce"]
            query = urllib.parse.urlencode({"code": code, "state": asked["state"]})
            self.answer(303, Location=f"{asked['redirect_uri']}?{query}")
        elif path == f"{PROVIDER_PREFIX}/token" and form["client_secret"] == CLIENT_SECRET:
            now = int(time.time())
            claims = {"aud": CLIENT, "email": USER, "nonce": self.codes.pop(form["code"])}
            token = id_token({**claims, "iat": now, "exp": now + 300})
            self.answer(200, json.dumps({"id_token": token}), Content_Type="application/json")
        else:
            self.answer(404)


class Service(_Handler):
    """Asked about each request; starts, ends and remembers logins."""

    provider = ""
    """Where the service finds the provider above, which the browser finds beside it."""
    issuer = ""
    """Another provider, anywhere."""
    origin = ""
    """What the browser calls the gateway: for another provider."""
    states: typing.ClassVar[dict] = {}
    sessions: typing.ClassVar[dict] = {}

    def serve(self, path, form):
        """Answer an own address, which comes without its prefix, or decide about another's."""
        if path == "/callback":
            self._log_in(form)
        elif path == "/logout":
            self.sessions.pop(self.cookie(SESSION), None)
            self.answer(303, Location="/", Set_Cookie=f"{SESSION}=; Path=/; Max-Age=0")
        elif path.startswith((f"{PROVIDER_PREFIX}/", f"{SERVICE_PREFIX}/")):
            self.answer(200)
        elif user := self.sessions.get(self.cookie(SESSION)):
            self.answer(200, **{IDENTITY: user})
        else:
            self._ask_to_log_in()

    def _addresses(self):
        """Where the browser is sent, and where codes are changed for tokens."""
        if not self.issuer:
            return f"{PROVIDER_PREFIX}/auth", f"{self.provider}{PROVIDER_PREFIX}/token"
        described = f"{self.issuer}/.well-known/openid-configuration"
        with urllib.request.urlopen(described, timeout=10) as answer:
            found = json.load(answer)
        return found["authorization_endpoint"], found["token_endpoint"]

    @property
    def _callback(self):
        return f"{self.origin}{SERVICE_PREFIX}/callback"

    def _ask_to_log_in(self):
        state, nonce = secrets.token_urlsafe(), secrets.token_urlsafe()
        self.states[state] = (nonce, self.path)
        query = {
            "client_id": CLIENT,
            "response_type": "code",
            "scope": "openid email",
            "redirect_uri": self._callback,
            "state": state,
            "nonce": nonce,
        }
        self.answer(
            302,
            Location=f"{self._addresses()[0]}?{urllib.parse.urlencode(query)}",
            Set_Cookie=f"{STATE}={state}; Path=/; HttpOnly",
        )

    def _log_in(self, form):
        if form["state"] != self.cookie(STATE):
            raise ValueError("not the browser that was sent to log in")
        nonce, wanted = self.states.pop(form["state"])
        query = {
            "grant_type": "authorization_code",
            "code": form["code"],
            "redirect_uri": self._callback,
            "client_id": CLIENT,
            "client_secret": CLIENT_SECRET,
        }
        body = urllib.parse.urlencode(query).encode()
        with urllib.request.urlopen(self._addresses()[1], body, timeout=10) as answer:
            claims = claims_of(json.load(answer)["id_token"], self.issuer)
        if claims["nonce"] != nonce:
            raise ValueError("nonce")
        session = secrets.token_urlsafe()
        self.sessions[session] = claims["email"]
        self.answer(303, Location=wanted, Set_Cookie=f"{SESSION}={session}; Path=/; HttpOnly")


def log_in_and_out(client, echo):
    """Do what a person does with a browser, and what a thief would like to do.

    Args:
        client: Makes a browser: an HTTP client with cookies that goes where it is sent.
        echo: A path of an application that says by which headers it was asked.
    """
    claim = {"Kubeflow-UserID": "admin@example.com"}
    with client() as browser:
        form = browser.get(f"{echo}?of=mine")
        assert [answer.status_code for answer in form.history] == [302]
        assert form.url.path == "/dex/auth"
        (number,) = re.findall(r'value="([^"]+)"', form.text)
        entered = {"request": number, "user": USER}
        wrong = browser.post("/dex/login", data={**entered, "password": "guess"})
        assert (wrong.status_code, SESSION in browser.cookies) == (401, False)
        page = browser.post("/dex/login", data={**entered, "password": PASSWORD})
        assert [answer.status_code for answer in page.history] == [303, 303]
        # What was wanted at first.
        assert (page.status_code, page.url.path, page.url.query) == (200, echo, b"of=mine")
        assert page.json()["headers"][IDENTITY] == USER
        callback = page.history[-1].url.raw_path.decode()
        page = browser.get(echo, headers=claim)
        assert page.json()["headers"][IDENTITY] == USER
        session = {"Cookie": f"{SESSION}={browser.cookies[SESSION]}"}
        with client() as other:
            assert other.get(echo, headers=session).url.path == echo
            # A code is for the browser that was sent for it, and good once.
            assert other.get(callback).status_code == 400
        assert browser.get(callback).status_code == 400
        gone = browser.get(f"{SERVICE_PREFIX}/logout")
        assert gone.url.path == "/dex/auth"
        assert SESSION not in browser.cookies
    with client() as thief:
        assert thief.get(echo, headers=session).url.path == "/dex/auth"


def main():
    """Serve as one of the two until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--provider", help="where the service finds the provider of this file")
    parser.add_argument("--issuer", default="", help="or another provider")
    parser.add_argument("--origin", default="", help="what the browser calls the gateway then")
    arguments = parser.parse_args()
    Service.provider, Service.issuer = arguments.provider, arguments.issuer
    Service.origin = arguments.origin
    handler = Service if arguments.provider or arguments.issuer else Provider
    http.server.ThreadingHTTPServer(("0.0.0.0", arguments.port), handler).serve_forever()


if __name__ == "__main__":
    main()
