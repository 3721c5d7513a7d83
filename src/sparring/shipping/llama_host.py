"""`python -m sparring.shipping.llama_host --model FILE --port N`: serves a GGUF file.

The package xllamacpp contains the server of the program `llama-server`. It runs in a separate
process, because a crash in native code would end the calling process.
"""

from __future__ import annotations

import argparse
import signal
import sys


def main(arguments: list[str]) -> int:
    """Serve a GGUF file on loopback until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="llama_host")
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ctx-size", type=int, default=4096)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--alias", default="shipped")
    given = parser.parse_args(arguments)
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = given.model
    parameters.model_alias = {given.alias}
    parameters.port = given.port
    parameters.n_ctx = given.ctx_size
    parameters.n_parallel = given.parallel
    parameters.cpuparams.n_threads = given.threads
    parameters.cpuparams_batch.n_threads = given.threads
    parameters.use_jinja = True
    parameters.warmup = False
    server = xllamacpp.Server(parameters)
    print(f"listening on {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
