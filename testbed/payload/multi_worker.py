"""A worker of a TFJob, which trains a line with the others by TensorFlow's collectives.

`TF_CONFIG`, which the training operator writes, tells each worker where the others are.
"""

import os
import sys

# Before the import, which writes a page of advice.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import numpy as np
import tensorflow as tf  # pyright: ignore[reportMissingModuleSource]  the image has it

STEPS = 20
ROWS = 64


def main() -> int:
    """Train; fail where the line is not the one of all workers' data."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id
    count = strategy.num_replicas_in_sync
    with strategy.scope():
        slope = tf.Variable(tf.constant(0.0))

    # Each worker's slope is its rank: the mean of all gradients leads to the mean of the ranks.
    inputs = tf.constant(np.linspace(-1, 1, ROWS), tf.float32)
    answers = inputs * float(rank)

    @tf.function
    def step() -> None:
        def of_worker() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((slope * inputs - answers) ** 2)
            gradient = tape.gradient(loss, slope)
            mean = tf.distribute.get_replica_context().all_reduce("mean", gradient)
            slope.assign_sub(mean)

        strategy.run(of_worker)

    for _ in range(STEPS):
        step()
    found, wanted = float(slope.numpy()), (count - 1) / 2
    print(f"worker {rank} of {count}: slope {found:.3f} after {STEPS} steps", flush=True)
    return 0 if abs(found - wanted) < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
