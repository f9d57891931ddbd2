"""Make labelled images of digits and serve them over HTTP, as an object store would.

The images are drawn, not collected: a glyph per digit, moved, dimmed and covered with noise. The
seed makes every server hand out the same set.
"""

import argparse
import http.server
import io
import signal
import sys

import numpy as np

SIDE = 8
CLASSES = 10
# Four columns by six rows a digit, a hexadecimal figure per row.
GLYPHS = ("699996", "262227", "6912f0", "e16196", "35f111", "f8e196", "68e996", "f12444", "696996",
          "697116")  # fmt: skip


def glyph(digit: int) -> np.ndarray:
    """Draw one digit, black on white, without noise."""
    rows = [[int(row, 16) >> shift & 1 for shift in (3, 2, 1, 0)] for row in GLYPHS[digit]]
    return np.array(rows, dtype=np.float32)


def make(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw `count` images, one row of 64 pixels each, with their labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    images = np.zeros((count, SIDE, SIDE), dtype=np.float32)
    for image, label in zip(images, labels, strict=True):
        top, left = random.integers(0, 2), random.integers(1, 3)
        image[top : top + 6, left : left + 4] = glyph(label) * random.uniform(0.6, 1.0)
    images += random.normal(0, 0.15, images.shape).astype(np.float32)
    return images.reshape(count, -1), labels.astype(np.int64)


def archive(count: int, seed: int) -> bytes:
    """Pack images and labels as numpy's .npz, a fifth of them for the final examination."""
    images, labels = make(count, seed)
    training = count * 4 // 5
    packed = io.BytesIO()
    np.savez_compressed(
        packed,
        images=images[:training],
        labels=labels[:training],
        test_images=images[training:],
        test_labels=labels[training:],
    )
    return packed.getvalue()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answer /digits.npz with the archive and /healthz with its length."""

    protocol_version = "HTTP/1.1"
    data = b""

    def do_GET(self) -> None:
        """Serve one of the two paths."""
        bodies = {"/digits.npz": self.data, "/healthz": f"{len(self.data)}\n".encode()}
        body = bodies.get(self.path, b"no such file\n")
        self.send_response(200 if self.path in bodies else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print requests on standard output, unbuffered."""
        print(format % args, flush=True)


def main() -> None:
    """Serve until the end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    # As PID 1 a process has no default action for SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Handler.data = archive(args.images, args.seed)
    server = http.server.ThreadingHTTPServer(("", args.port), Handler)
    print(f"serving {args.images} images on port {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
