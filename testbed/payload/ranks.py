"""One rank of a distributed job: meet at rank 0, connect to all other ranks, and reduce together.

MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE are set as for PyTorch. Only rank 0 listens at a
known port. As with gloo and NCCL, the ranks then connect to each other by the addresses of their
pods, at ports that the kernel chose and no Service declares.
"""

import argparse
import concurrent.futures
import json
import os
import socket
import statistics
import struct
import sys
import time
from typing import Any

import numpy as np

Place = tuple[str, int]
"""A host and a port."""
SMALL = 4096
"""Bytes that the kernel takes in any case, so that no rank waits for the other to receive."""
LATENCIES = 500
SENDING = concurrent.futures.ThreadPoolExecutor(16)


def main() -> int:
    """Run one rank; its exit code is 1 where ranks do not reach each other in time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two steps")
    parser.add_argument("--values", type=int, default=10_000)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--measure", action="store_true", help="print the speed of the steps")
    args = parser.parse_args()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    port = int(os.environ.get("MASTER_PORT", "23456"))
    master = (os.environ.get("MASTER_ADDR", "127.0.0.1"), port)
    try:
        peers = connect(rank, size, master, args.timeout)
        print(f"rank {rank}: connected", flush=True)
        for step in range(args.steps):
            mine = np.full(args.values, float(rank + step))
            assert (reduce(peers, mine) == sum(range(size)) + size * step).all()
            time.sleep(args.pause)
        if args.measure:
            seconds = timed(peers, args.values, args.steps)
            gigabits = 64 * args.values / seconds / 1e9
            print(f"{1e6 * timed(peers, 1, LATENCIES):.0f} us, {gigabits:.2f} Gbit/s", flush=True)
    except OSError as error:
        print(f"rank {rank}: {type(error).__name__}: {error}", flush=True)
        return 1
    print(f"rank {rank}: {args.steps} steps with {len(peers)} peers", flush=True)
    return 0


def connect(rank: int, size: int, master: Place, timeout: float) -> list[socket.socket]:
    """Return a connection to each other rank, in the order of their ranks.

    Rank 0 listens at the port of `master`, which the other ranks call by its name.
    """
    own = socket.create_server(("", 0))
    own.settimeout(timeout)
    address = socket.gethostbyname(socket.gethostname())
    places = meet(rank, size, master, (address, own.getsockname()[1]), timeout)
    found: dict[int, socket.socket] = {}
    for number, (host, port) in enumerate(places[:rank]):
        peer = socket.create_connection((host, port), timeout)
        send(peer, rank)
        # A proxy accepts before it has reached the other rank.
        receive(peer)
        found[number] = peer
    while len(found) < size - 1:
        peer, _ = own.accept()
        peer.settimeout(timeout)
        found[receive(peer)] = peer
        send(peer, "welcome")
    return [found[number] for number in sorted(found)]


def meet(rank: int, size: int, master: Place, place: Place, timeout: float) -> list[Place]:
    """Tell rank 0 where this rank listens, and return where each one does."""
    if rank == 0:
        server = socket.create_server(("", master[1]))
        server.settimeout(timeout)
        places, others = {0: place}, []
        while len(places) < size:
            other, _ = server.accept()
            other.settimeout(timeout)
            try:
                number, where = receive(other)
            except OSError:
                continue
            places[number] = where
            others.append(other)
        found = [places[number] for number in range(size)]
        for other in others:
            send(other, found)
        return found
    end = time.monotonic() + timeout
    while True:
        try:
            with socket.create_connection(master, timeout) as first:
                send(first, (rank, place))
                return receive(first)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def reduce(peers: list[socket.socket], mine: np.ndarray) -> np.ndarray:
    """Return the sum of the arrays of all ranks."""
    data = mine.tobytes()
    if mine.nbytes <= SMALL:
        for peer in peers:
            peer.sendall(data)
        sent = []
    else:
        sent = [SENDING.submit(peer.sendall, data) for peer in peers]
    received = (np.frombuffer(exactly(peer, mine.nbytes)) for peer in peers)
    whole = sum((each.reshape(mine.shape) for each in received), mine)
    for each in sent:
        each.result()
    return whole


def timed(peers: list[socket.socket], values: int, times: int) -> float:
    """Return the median seconds of an all-reduce of so many values."""
    found = []
    for _ in range(times):
        began = time.monotonic()
        reduce(peers, np.zeros(values))
        found.append(time.monotonic() - began)
    return statistics.median(found)


def send(peer: socket.socket, value: object) -> None:
    """Send a value of JSON with its length."""
    body = json.dumps(value).encode()
    peer.sendall(struct.pack("!I", len(body)) + body)


def receive(peer: socket.socket) -> Any:
    """Return what `send` sent."""
    return json.loads(exactly(peer, *struct.unpack("!I", exactly(peer, 4))))


def exactly(peer: socket.socket, count: int) -> bytearray:
    """Receive so many bytes."""
    body, got = bytearray(count), 0
    while got < count:
        part = peer.recv_into(memoryview(body)[got:])
        if not part:
            raise ConnectionResetError(f"got {got} of {count} bytes")
        got += part
    return body


if __name__ == "__main__":
    sys.exit(main())
