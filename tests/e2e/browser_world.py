"""A person at a real browser inside of the testbed's network, and who they sign in with.

The provider and the browser's driver come from packages, in a Python environment of their own; the
browser is Debian's. None of them has a way out of the testbed.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import urllib.request

import pytest

from testbed import environments, paths
from testbed.kit import workloads
from tests import oidc, waiting
from tests.e2e.conftest import BUILD
from tests.gateway_client import HOST
from tests.kubernetes_objects import endpoint_slice

CHROMIUM = pathlib.Path("/usr/bin/chromium")
PICTURES = BUILD / "browser"
ORIGIN = f"https://{HOST}"
PROVIDER_PORT = 9400
SERVICE, SERVICE_PORT = "oauth2-proxy", 4180
TALK = """address => new Promise(done => {
    window.talk = new WebSocket(address);
    talk.onopen = () => talk.send("1 + 1");
    talk.onmessage = message => done(message.data);
    talk.onerror = () => done("refused");
})"""
TALK_ON = """text => new Promise(done => {
    talk.onmessage = message => done(message.data);
    talk.onclose = () => done("closed");
    talk.send(text);
})"""
FETCH = "address => fetch(address).then(answer => answer.status, () => 'no answer')"


@contextlib.contextmanager
def spawned(testbed, argv, url):
    """Run a program beside the node, which is there when it answers at a URL."""
    process = testbed.spawn(argv, pathlib.Path(argv[0]).name)
    try:
        assert waiting.eventually(lambda: urllib.request.urlopen(url, timeout=5)), argv
        yield
    finally:
        # What enters the node's namespaces is its parent.
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


@contextlib.contextmanager
def provider(testbed):
    """Run an OpenID provider at another site than the applications; its address."""
    program = environments.ensure("browser") / "bin" / "oidc-provider-mock"
    address = str(testbed.plan.node)
    argv = [str(program), f"--host={address}", f"--port={PROVIDER_PORT}"]
    issuer = f"http://{address}:{PROVIDER_PORT}"
    with spawned(testbed, argv, f"{issuer}/.well-known/openid-configuration"):
        yield issuer


@contextlib.contextmanager
def authenticating(testbed, issuer, folder, namespace):
    """Run an oauth2-proxy for a provider; the Service that leads to it, and what that has."""
    url = f"--redirect-url={ORIGIN}{oidc.PREFIX}/callback"
    known = oidc.of_issuer(issuer, insecureAllowUnverifiedEmail=True)
    argv = oidc.command(folder, SERVICE_PORT, url, **known)
    address = str(testbed.plan.node)
    service = workloads.service(SERVICE, namespace, SERVICE_PORT)
    del service["spec"]["selector"]
    port = {"name": "http", "port": SERVICE_PORT, "protocol": "TCP"}
    endpoints = endpoint_slice(SERVICE, namespace, address, port)
    with spawned(testbed, argv, f"http://{address}:{SERVICE_PORT}/ping"):
        yield service, endpoints


@contextlib.contextmanager
def chromium(testbed, gateway, folder):
    """Run a browser that finds our host at the gateway's address, and no other name anywhere."""
    subprocess.run([paths.SOURCE / "testbed" / "setup.sh", "browser"], check=True)
    if not CHROMIUM.exists():
        pytest.fail("there is no browser; as root, run: testbed/setup.sh browser")
    packages = next(environments.ensure("browser").glob("lib/python*/site-packages"))
    # After the project's own, which win where both have a package.
    sys.path.append(str(packages))
    from playwright import sync_api  # noqa: PLC0415  found now

    program = folder / "chromium"
    inside = f"nsenter --target={testbed.holder.init} --net --"
    program.write_text(f'#!/bin/sh\nexec {inside} {CHROMIUM} "$@"\n')
    program.chmod(0o755)
    names = f"MAP {HOST} {gateway}, EXCLUDE {testbed.plan.node}, MAP * ~NOTFOUND"
    try:
        with sync_api.sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=program,
                args=[f"--host-resolver-rules={names}", "--disable-background-networking"],
            )
            yield browser
            browser.close()
    finally:
        sys.path.remove(str(packages))


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a person sees in a tab, and how they came there."""

    way: list
    """The status of each answer since they last did something, redirects among them."""
    url: str
    title: str
    user: str
    asked: str
    kept: str


class Person:
    """Somebody with a browser of their own, which knows nothing yet; pictures have the name."""

    def __init__(self, browser, name):
        self.context = browser.new_context(ignore_https_errors=True, base_url=ORIGIN)
        self._name = name
        self._pictures = 0
        self._ways = {}
        self.tab = self.new_tab()

    def new_tab(self):
        """Open a tab and look at it."""
        self.tab = self.context.new_page()
        way = self._ways[self.tab] = []

        def follow(answer):
            if answer.request.is_navigation_request():
                way.append(answer.status)

        self.tab.on("response", follow)
        return self.tab

    def visit(self, address):
        """Type an address."""
        self._ways[self.tab].clear()
        self.tab.goto(address)
        return self.see()

    def press(self, *, button="", link=""):
        """Press a button or follow a link, and wait for the page that comes."""
        self._ways[self.tab].clear()
        role, name = ("button", button) if button else ("link", link)
        with self.tab.expect_navigation():
            self.tab.get_by_role(role, name=name, exact=True).click()
        return self.see()

    def sign_in(self, user):
        """Say who one is at the provider."""
        self.tab.fill("input[name=sub]", user)
        return self.press(button="Authorize")

    def keep(self, text):
        """Fill in the form of an application, and send it."""
        self.tab.fill("input[name=text]", text)
        return self.press(button="Keep")

    def see(self):
        """Take a picture, and read the page."""
        self._pictures += 1
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.tab.screenshot(path=PICTURES / f"{self._name}-{self._pictures}.png")
        texts = {}
        for part in ("user", "asked", "kept"):
            found = self.tab.locator(f"#{part}")
            texts[part] = found.inner_text() if found.count() else ""
        return Seen([*self._ways[self.tab]], self.tab.url, self.tab.title(), **texts)

    def end_session(self):
        """End the session as its time does: no page hears of it."""
        assert [each for each in self.context.cookies(ORIGIN) if each["name"] == oidc.SESSION]
        self.context.clear_cookies(name=oidc.SESSION)
