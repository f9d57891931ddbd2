"""Do one HTTP GET in the first instruction; exit with 1 when it fails.

Usage: first_request.py URL [SECONDS]   (stay that long after a good answer)

Only `socket` is imported, so that the request leaves within milliseconds of the container's
start: an application that is held until its proxy works answers, one that is not fails.
"""

import socket
import sys


def get(url: str, timeout: float = 5) -> str:
    """Return the status line of the answer to a GET of an http:// URL."""
    address, _, path = url.removeprefix("http://").partition("/")
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port or 80)), timeout=timeout) as connection:
        connection.sendall(
            f"GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n" not in answer:
            received = connection.recv(4096)
            if not received:
                break
            answer += received
    return answer.partition(b"\r\n")[0].decode(errors="replace")


def main() -> int:
    """Run the request, report it, and stay for a while."""
    try:
        status = get(sys.argv[1])
    except OSError as error:
        print(f"first request failed: {error}", file=sys.stderr, flush=True)
        return 1
    print(f"first request: {status}", flush=True)
    if status.split(" ")[1:2] != ["200"]:
        return 1
    if len(sys.argv) > 2:
        import time  # noqa: PLC0415 -- not needed for the first instruction

        time.sleep(float(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
