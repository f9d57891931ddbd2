"""One replica of a TFJob: train a softmax classifier of digits, data-parallel and synchronous.

The first instruction downloads the data, as training scripts do; when that fails the replica ends
with exit code 1. The replicas then meet at the chief and connect to each other as in `ranks.py`:
by the addresses of their pods, at ports that the kernel chose. In every step each replica
computes the gradient on its own part of the data. The average of all gradients changes the
weights, of which each replica has a copy. The chief's name and port come from TF_CONFIG.
"""

import argparse
import dataclasses
import http.client
import io
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import ranks

CLASSES = 10


class TrainingError(Exception):
    """The replica can't do its part; the message says why."""


@dataclasses.dataclass(frozen=True)
class Role:
    """This replica's place in the job."""

    name: str
    # Number among all replicas: the chief is 0.
    index: int
    replicas: int
    # Where the replicas meet.
    chief: ranks.Place


@dataclasses.dataclass(frozen=True)
class Data:
    """Images, a row of pixels each, and their labels."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def role(tf_config: str) -> Role:
    """Read TF_CONFIG as the training operator writes it; empty means a job of one replica."""
    if not tf_config:
        return Role("chief-0", 0, 1, ("127.0.0.1", 2222))
    config = json.loads(tf_config)
    chiefs = config["cluster"].get("chief") or config["cluster"]["master"]
    host, _, port = chiefs[0].rpartition(":")
    kind, number = config["task"]["type"], int(config["task"]["index"])
    index = number + 1 if kind == "worker" else 0
    replicas = 1 + len(config["cluster"].get("worker", []))
    return Role(f"{kind}-{number}", index, replicas, (host, int(port)))


def gradient(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute the gradient of the mean cross-entropy; the last row of weights is the bias."""
    inputs = with_bias(images)
    scores = inputs @ weights
    scores -= scores.max(axis=1, keepdims=True)
    probabilities = np.exp(scores)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    probabilities[np.arange(len(labels)), labels] -= 1
    return inputs.T @ probabilities / len(labels)


def accuracy(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of images that get their right label."""
    return float((np.argmax(with_bias(images) @ weights, axis=1) == labels).mean())


def with_bias(images: np.ndarray) -> np.ndarray:
    """Append the constant pixel that the bias is multiplied with."""
    return np.hstack([images, np.ones((len(images), 1), dtype=images.dtype)])


def train(me: Role, data: Data, args: argparse.Namespace) -> np.ndarray:
    """Take every step together with the other replicas, and return the weights."""
    weights = np.zeros((data.images.shape[1] + 1, CLASSES))
    images, labels = part(data, me)
    try:
        peers = ranks.connect(me.index, me.replicas, me.chief, args.timeout)
        for _ in range(args.steps):
            total = ranks.reduce(peers, gradient(weights, images, labels))
            weights -= args.rate * total / me.replicas
            time.sleep(args.pause)
    except OSError as error:
        raise TrainingError(f"a replica is not reached: {error}") from error
    return weights


def part(data: Data, me: Role) -> tuple[np.ndarray, np.ndarray]:
    """Return this replica's part of the training data."""
    return data.images[me.index :: me.replicas], data.labels[me.index :: me.replicas]


def download(url: str) -> Data:
    """Fetch the data once, with no second try: that is what this payload is for."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        raise TrainingError(f"the download failed: {url}: HTTP {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        raise TrainingError(f"the download failed: {url}: {error}") from error
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return Data(**{field.name: arrays[field.name] for field in dataclasses.fields(Data)})


def main() -> int:
    """Run one replica."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("DATA_URL", "http://digits/digits.npz"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rate", type=float, default=4.0)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two steps")
    parser.add_argument("--timeout", type=float, default=120, help="seconds to wait for others")
    parser.add_argument("--accuracy", type=float, default=0.85, help="less is a failure")
    args = parser.parse_args()
    # As PID 1 a process has no default action for SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        data = download(args.data)
        me = role(os.environ.get("TF_CONFIG", ""))
        print(f"{me.name}: {len(data.labels)} images downloaded", flush=True)
        result = accuracy(train(me, data, args), data.test_images, data.test_labels)
    except TrainingError as error:
        print(f"error: {error}", flush=True)
        return 1
    print(
        f"{me.name}: accuracy {result:.3f} after {args.steps} steps by {me.replicas} replicas",
        flush=True,
    )
    return 0 if result >= args.accuracy else 3


if __name__ == "__main__":
    sys.exit(main())
