"""The processes that benchmarks start, and what they take: CPU time and memory."""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import ROOT
from integrator_contract import service


class Process:
    """What a process takes, as the kernel counts it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._since = self.cpu

    @classmethod
    def of(cls, name: str, marker: str) -> Process:
        """Find a program by its name and a word of its command line."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[0].endswith(f"/{name}") and marker in " ".join(words):
                return cls(int(path.parent.name))
        raise SystemExit(f"no {name} runs")

    @property
    def words(self) -> str:
        """Its command line."""
        return Path(f"/proc/{self.number}/cmdline").read_bytes().decode().replace("\0", " ")

    @property
    def cpu(self) -> float:
        """Seconds until now."""
        fields = Path(f"/proc/{self.number}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def used(self) -> float:
        """Return the seconds since it was asked last."""
        before, self._since = self._since, self.cpu
        return self._since - before

    def held(self) -> float:
        """Return the MB that it holds."""
        status = Path(f"/proc/{self.number}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found[1]) * 1024 / 1e6 if found else 0.0


class Reconciler(Process):
    """The workload's service as a unit runs it, with the rights of a kubeconfig."""

    def __init__(
        self,
        kubeconfig: Path,
        model: str,
        level: service.LogLevel,
        checkout: Path = ROOT,
        log: Any = None,
    ) -> None:
        """Start it.

        Args:
            kubeconfig: Of the cluster.
            model: Its namespace.
            level: Of the log.
            checkout: Whose workload.
            log: The file of its log.
        """
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        settings = kubeconfig.with_name(f"settings-{self.port}.json")
        told = service.Options(
            model=model,
            application="bench",
            unit="bench/0",
            log_level=level,
            restart_pods="manual",
        )
        settings.write_text(told.encode())
        words = [
            "-m",
            "tests.workload_access",
            str(kubeconfig),
            "run",
            "--settings",
            str(settings),
        ]
        path = ":".join(str(checkout / each) for each in (".", "workload", "lib"))
        self._process = subprocess.Popen(
            [sys.executable, *words, f"--listen=127.0.0.1:{self.port}", "--port=0"],
            env={**os.environ, "PYTHONPATH": path},
            stderr=log,
        )
        super().__init__(self._process.pid)

    def is_ready(self) -> bool:
        """Tell whether it has seen all pods."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()

    def end(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()
