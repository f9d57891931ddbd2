"""The controller's process: `python -m juju_standin.controller`."""

import argparse
import asyncio
import logging
import secrets
import signal
import ssl
import sys
from pathlib import Path

from aiohttp import web

from testbed import certificates, kubernetes

from .commands import Commands
from .server import Server
from .store import Store
from .substrate import Substrate


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="juju_standin.controller", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="folder of keys and logs")
    parser.add_argument("--address", required=True, help="HOST:PORT to listen on")
    parser.add_argument("--kubeconfig", type=Path, help="of the cluster; without it, no cluster")
    parser.add_argument("--charm-image", default="", help="image of charm-init and charm")
    return parser.parse_args(argv)


def password(state: Path) -> str:
    """The command line's password, made at the first use."""
    path = state / "password"
    if not path.exists():
        state.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(24))
    return path.read_text()


async def serve(arguments: argparse.Namespace, stop: asyncio.Event) -> None:
    """Serve until told to stop."""
    authority = certificates.Authority(arguments.state)
    certificate = authority.pair.certificate.read_text()
    client = (
        kubernetes.Api.from_kubeconfig(arguments.kubeconfig, field_manager="juju")
        if arguments.kubeconfig
        else None
    )
    substrate = (
        Substrate(client, arguments.charm_image, arguments.address, certificate)
        if client
        else None
    )
    store = Store(arguments.state / "models")
    commands = Commands(store, substrate)
    server = Server(store, commands, authority, password(arguments.state))
    host, port = arguments.address.rsplit(":", 1)
    # An agent that ends while it waits for news is absent from then on.
    runner = web.AppRunner(
        server.application(), access_log=None, shutdown_timeout=1, handler_cancellation=True
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, int(port), ssl_context=_tls(authority, host)).start()
        await stop.wait()
    finally:
        await commands.close()
        await runner.cleanup()
        if client:
            await client.close()


def _tls(authority: certificates.Authority, host: str) -> ssl.SSLContext:
    pair = authority.server("controller", ["localhost"], [host, "127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


async def main() -> int:
    """Run the process."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(parse(), stop)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
