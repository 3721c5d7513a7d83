"""`python -m sparring.shipping.cyllama_quantize IN OUT TYPE`: quantises a GGUF file with cyllama.

It runs in a separate process, because cyllama and xllamacpp bundle different builds of llama.cpp.
"""

from __future__ import annotations

import sys

# llama.cpp's numbers for file types (`llama_ftype`).
FILE_TYPES = {
    "Q4_0": 2, "Q5_0": 8, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_M": 17,
    "Q6_K": 18,
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Quantise one file and return the exit code; `arguments` are IN, OUT and TYPE."""
    source, target, name = arguments
    from cyllama.llama import llama_cpp

    parameters = llama_cpp.LlamaModelQuantizeParams()
    parameters.ftype = FILE_TYPES[name]
    parameters.nthread = 1
    llama_cpp.model_quantize(source, target, parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
