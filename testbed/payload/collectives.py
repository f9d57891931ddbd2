"""One rank of a job that adds arrays by JAX's collectives over gloo.

gloo connects each rank to all others by the addresses of their pods, at ports that the kernel
chose.
"""

import argparse
import os
import socket
import time
import traceback

import jax  # pyright: ignore[reportMissingImports]  the image has it
import numpy as np

VARIABLES = (
    ("COORDINATOR_ADDRESS", "COORDINATOR_PORT", "NUM_PROCESSES", "PROCESS_ID"),
    ("PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES", "PET_NODE_RANK"),
    ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"),
)
"""By which a JAXJob, a TrainJob and a PyTorchJob tell a pod where rank 0 is, and its own rank.

Without the last one, the rank is the number at the end of the pod's hostname.
"""

_LONGER = 5
"""Seconds by which rank 0 outlives the last step."""


def main() -> None:
    """Run one rank; it fails where ranks do not reach each other in time, or a sum is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--values", type=int, default=10_000)
    parser.add_argument("--timeout", type=int, default=60)
    args = parser.parse_args()
    names = next(each for each in VARIABLES if each[0] in os.environ)
    host, port, size = (os.environ[name] for name in names[:3])
    size = int(size)
    rank = int(os.environ.get(names[3]) or socket.gethostname().rpartition("-")[2])
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"{host}:{port}", size, rank, initialization_timeout=args.timeout)
    add = jax.pmap(lambda values: jax.lax.psum(values, "ranks"), "ranks")
    for step in range(args.steps):
        total = add(np.full((1, args.values), rank + step, np.float32))
        (mine,) = total.addressable_shards
        assert (np.asarray(mine.data) == sum(range(size)) + size * step).all()
    print(f"rank {rank}: {args.steps} steps with {size - 1} peers", flush=True)
    # With JAX's own end, rank 0 closes its service while others still ask it, which aborts them.
    time.sleep(_LONGER if rank == 0 else 0)
    os._exit(0)


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        # At its end JAX would wait some minutes for the ranks that have failed.
        os._exit(1)
