"""The workload looks at a real Envoy: an API server forwards ports to its administration."""

import asyncio
import contextlib

import msgspec

from integrator_contract.seen import Cause, EnvoyState
from tests import workload_access
from tests.unit.workload import service_world
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task
from tests.unit.workload.fake_apiserver import until as waiting_until


class Kubelet:
    """Forwards a port to the Envoy's administration, or to istiod."""

    def __init__(self, admin, port=15000):
        self.admin, self.port = admin, port
        self.release = asyncio.Event()

    async def port_forward(self, request, socket, _):
        assert request.query["ports"] == str(self.port)
        port = self.port.to_bytes(2, "little")
        await socket.send_bytes(b"\0" + port)
        await socket.send_bytes(b"\1" + port)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.admin)
        except ConnectionRefusedError as error:
            await socket.send_bytes(b"\1" + str(error).encode())
            return

        async def back():
            while data := await reader.read(32768):
                await socket.send_bytes(b"\0" + data)

        with contextlib.closing(writer):
            async with running_task(back()):
                async for message in socket:
                    writer.write(message.data[1:])


def pod(namespace, labels, name, status="True"):
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "status": {"conditions": [{"type": "Ready", "status": status}]},
    }


async def answer(service):
    return msgspec.convert(await service.get("/seen"), EnvoyState)


def look(expected, until, admin, istiod=0, *, seconds=0):
    """Look at a gateway whose pod's Envoy has that port, until the answer is as wanted.

    After so many seconds any answer is; without them none is after 20.
    """

    async def run():
        fake = FakeApiserver()
        async with fake:
            about = expected.namespace, expected.selector
            fake.put("pods", pod(*about, "gateway"))
            fake.put("pods", pod(*about, "starting", "False"))
            fake.put("pods", pod(expected.istiod, {"app": "istiod"}, "istiod"))
            fake.proxies["gateway"] = Kubelet(admin)
            fake.proxies["istiod"] = Kubelet(istiod, 15014)
            connection = workload_access.at(fake.address, fake.token)
            settings = service_world.SETTINGS
            async with service_world.serving(connection, settings, expected=expected) as service:

                async def is_wanted():
                    return until(await answer(service))

                with contextlib.suppress(TimeoutError):
                    await waiting_until(is_wanted, seconds or 20)
                found = await answer(service)
        assert seconds or until(found), found
        return found

    return asyncio.run(run())


def has_chain(admin, namespace, pod, name):
    """Ask the workload whether the Envoy of a pod follows an EnvoyFilter."""

    async def run():
        fake = FakeApiserver()
        async with fake:
            fake.put("pods", {"metadata": {"name": pod, "namespace": namespace}})
            fake.proxies[pod] = Kubelet(admin)
            connection = workload_access.at(fake.address, fake.token)
            async with service_world.serving(connection, service_world.SETTINGS) as service:
                return await service.get(f"/outbound?namespace={namespace}&pod={pod}&name={name}")

    return asyncio.run(run())


def look_at_whole(expected, admin):
    """Look at a gateway until it is as expected or a host is taken, or for some seconds."""
    ports = {server.port for server in expected.servers}
    routes = expected.routes if any(server.hosts for server in expected.servers) else 0

    def is_settled(answer):
        # Which Gateway has a host stays as it is until a hook writes again.
        is_taken = any(each.cause is Cause.HOST_TAKEN for each in answer.missing)
        return is_taken or (ports <= {*answer.guarded} and answer.routes == routes)

    return look(expected, is_settled, admin, seconds=6)
