"""One rank of an MPIJob, which adds arrays by Open MPI over TCP."""

import sys

import numpy as np
from mpi4py import MPI  # pyright: ignore[reportMissingImports]  the image has it

STEPS = 5
VALUES = 100_000


def main() -> int:
    """Run one rank; it fails where a sum is wrong."""
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    total = np.empty(VALUES)
    for step in range(STEPS):
        world.Allreduce(np.full(VALUES, float(rank + step)), total)
        assert (total == sum(range(size)) + size * step).all()
    print(f"rank {rank}: {STEPS} steps with {size - 1} peers", flush=True)
    return 0 if size > 1 else 1


if __name__ == "__main__":
    sys.exit(main())
