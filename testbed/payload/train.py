"""One replica of a TFJob: train a softmax classifier of digits, data-parallel and synchronous.

The first instruction downloads the data, as training scripts do; when that fails the replica ends
with exit code 1. The chief keeps the weights. In every step each replica, the chief too, computes
the gradient on its own part of the data; workers POST theirs to the chief and get the new weights
when the last one has arrived. The addresses come from TF_CONFIG, so gradients travel between pods
through whatever network they have: here, the mesh.
"""

import argparse
import contextlib
import dataclasses
import http.client
import http.server
import io
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np

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
    # host:port of the chief.
    chief: str


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
        return Role("chief-0", 0, 1, "127.0.0.1:2222")
    config = json.loads(tf_config)
    chiefs = config["cluster"].get("chief") or config["cluster"]["master"]
    kind, number = config["task"]["type"], int(config["task"]["index"])
    index = number + 1 if kind == "worker" else 0
    replicas = 1 + len(config["cluster"].get("worker", []))
    return Role(f"{kind}-{number}", index, replicas, chiefs[0])


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


def packed(array: np.ndarray) -> bytes:
    """Serialise an array without pickling."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def unpacked(body: bytes) -> np.ndarray:
    """Read what `packed` wrote."""
    return np.load(io.BytesIO(body), allow_pickle=False)


class Parameters:
    """The weights, and the barrier at which the replicas meet in every step."""

    def __init__(self, *, pixels: int, replicas: int, rate: float) -> None:
        self.weights = np.zeros((pixels + 1, CLASSES))
        self.step = 0
        self._replicas = replicas
        self._rate = rate
        self._gradients: dict[int, np.ndarray] = {}
        self._left: set[int] = set()
        self._changed = threading.Condition()

    def contribute(self, step: int, replica: int, value: np.ndarray, timeout: float) -> bool:
        """Hand in one gradient and wait for the others; False when they did not come in time.

        A replica that asks again for a step which is over gets the current weights, so a lost
        answer costs nothing.
        """
        with self._changed:
            if step == self.step:
                self._gradients[replica] = value
            if len(self._gradients) == self._replicas:
                mean = sum(self._gradients[index] for index in sorted(self._gradients))
                self.weights = self.weights - self._rate * mean / self._replicas
                self._gradients = {}
                self.step += 1
                self._changed.notify_all()
            return self._changed.wait_for(lambda: self.step > step, timeout)

    def leave(self, replica: int) -> None:
        """Note that a worker has the final weights."""
        with self._changed:
            self._left.add(replica)
            self._changed.notify_all()

    def wait_for_workers(self, timeout: float) -> bool:
        """Wait until every worker has left."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._left) == self._replicas - 1, timeout)


def handler(parameters: Parameters, timeout: float) -> type[http.server.BaseHTTPRequestHandler]:
    """Make the chief's HTTP interface to the parameters."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            action, *numbers = self.path.strip("/").split("/")
            if action == "left":
                # The chief ends at the last of these: the answer goes out first.
                self._answer(200)
                parameters.leave(int(numbers[0]))
                return
            step, replica = int(numbers[0]), int(numbers[1])
            is_over = parameters.contribute(step, replica, unpacked(body), timeout)
            self._answer(200 if is_over else 503)

        def _answer(self, code: int) -> None:
            body = packed(parameters.weights)
            self.send_response(code)
            self.send_header("X-Step", str(parameters.step))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler


def call(url: str, body: bytes | None, deadline: float) -> tuple[int, np.ndarray]:
    """Ask the chief, again and again until the deadline: it may not have started yet."""
    while True:
        try:
            with urllib.request.urlopen(url, body, timeout=30) as answer:
                return int(answer.headers["X-Step"]), unpacked(answer.read())
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > deadline:
                raise TrainingError(f"the chief does not answer: {url}: {error}") from error
            time.sleep(0.2)


def train_as_chief(me: Role, data: Data, args: argparse.Namespace) -> float:
    """Serve the weights, take part in each step, and examine the result."""
    pixels = data.images.shape[1]
    parameters = Parameters(pixels=pixels, replicas=me.replicas, rate=args.rate)
    port = int(me.chief.rpartition(":")[2])
    server = http.server.ThreadingHTTPServer(("", port), handler(parameters, timeout=20))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for step in range(args.steps):
        mine = gradient(parameters.weights, *part(data, me))
        if not parameters.contribute(step, 0, mine, args.timeout):
            raise TrainingError(f"a worker did not come to step {step}")
        time.sleep(args.pause)
    if not parameters.wait_for_workers(args.timeout):
        raise TrainingError("a worker never fetched the final weights")
    return accuracy(parameters.weights, data.test_images, data.test_labels)


def train_as_worker(me: Role, data: Data, args: argparse.Namespace) -> float:
    """Send a gradient for each step, and examine the weights that come back at the end."""
    deadline = time.monotonic() + args.timeout
    base = f"http://{me.chief}"
    step, weights = call(f"{base}/weights", None, deadline)
    while step < args.steps:
        mine = packed(gradient(weights, *part(data, me)))
        step, weights = call(f"{base}/gradients/{step}/{me.index}", mine, deadline)
    # The weights are here; whether the chief hears so is its matter, it may have ended.
    with contextlib.suppress(TrainingError):
        call(f"{base}/left/{me.index}", b"", time.monotonic())
    return accuracy(weights, data.test_images, data.test_labels)


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
        train = train_as_worker if me.name.startswith("worker") else train_as_chief
        result = train(me, data, args)
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
