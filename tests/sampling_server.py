"""A stand-in for a vLLM server: the same requests and replies, on transformers and PEFT.

`python -m tests.sampling_server --model DIR --port PORT` takes vLLM's arguments and ignores those
it does not need. `--fault NAME` provokes a fault that vLLM has, with status 200. The contract is
tested against a real vLLM by `pytest -m vllm`.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FAULTS = ("mixed-rows", "tied-head", "no-adapter")
_BLOCK = 16  # tokens; vLLM caches whole blocks


class Weights:
    """The model with its adapters. Every request is computed alone, so that a sample depends on
    nothing but the request."""

    def __init__(self, folder: str, fault: str, *, has_prefix_cache: bool) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.torch = torch
        self.folder = folder
        self.fault = fault
        self.has_prefix_cache = has_prefix_cache
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.adapters: dict[str, Path] = {}
        self.prefixes: dict[tuple[str, str], tuple[list[int], Any]] = {}
        self.lock = threading.Lock()
        self.in_flight = 0
        self.version = "default"

    def load(self, name: str, path: Path) -> None:
        from peft import PeftModel

        with self.lock:
            if name in self.adapters:
                self.model.delete_adapter(name)
            if hasattr(self.model, "peft_config"):
                self.model.load_adapter(str(path), name)
            else:
                self.model = PeftModel.from_pretrained(self.model, str(path), adapter_name=name)
            self.model.eval()
            self.adapters[name] = path

    def find(self, name: str) -> bool:
        """Whether the name is served; loads it from the folder of adapters if it is there."""
        if name in (self.folder, "base") or name in self.adapters:
            return True
        cache = os.environ.get("VLLM_LORA_RESOLVER_CACHE_DIR")
        if cache and (Path(cache) / name / "adapter_config.json").is_file():
            self.load(name, Path(cache) / name)
            return True
        return False

    def reload(self, folder: Path) -> None:
        from safetensors.torch import load_file

        with self.lock:
            state = load_file(str(folder / "model.safetensors"))
            head = self.model.get_output_embeddings().weight
            old_head = head.detach().clone()
            self.model.load_state_dict(state, strict=False)
            if self.fault == "tied-head":
                self.model.lm_head.weight = self.torch.nn.Parameter(old_head)

    def sample(self, body: dict[str, Any]) -> dict[str, Any]:
        name, prompt = body["model"], list(body["prompt"])
        with self.lock:
            is_adapter = name in self.adapters and self.fault != "no-adapter"
            is_mixed = self.fault == "mixed-rows" and self.in_flight > 1
            if hasattr(self.model, "peft_config"):
                if is_adapter and not is_mixed:
                    self.model.set_adapter(name)
                    return self._decode(body, prompt)
                with self.model.disable_adapter():
                    return self._decode(body, prompt)
            return self._decode(body, prompt)

    def _decode(self, body: dict[str, Any], prompt: list[int]) -> dict[str, Any]:
        torch = self.torch
        generator = torch.Generator().manual_seed(int(body["seed"]))
        stops, ids, logprobs = set(body.get("stop_token_ids") or ()), [], []
        with torch.inference_mode():
            cache, new = self._prefix(body, prompt)
            while True:
                output = self.model(input_ids=torch.tensor([new]), past_key_values=cache)
                cache = output.past_key_values
                if not ids:
                    self._keep_prefix(body, prompt, cache)
                scores = output.logits[0, -1].float() / max(float(body["temperature"]), 1e-6)
                chances = torch.log_softmax(scores, -1)
                token = int(torch.multinomial(chances.exp(), 1, generator=generator))
                ids.append(token)
                logprobs.append(float(chances[token]))
                if token in stops or len(ids) >= int(body["max_tokens"]):
                    reason = "stop" if token in stops else "length"
                    return {
                        "index": 0,
                        "text": "",
                        "finish_reason": reason,
                        "token_ids": ids,
                        "prompt_token_ids": prompt,
                        "logprobs": {"token_logprobs": logprobs},
                    }
                new = [token]

    def _prefix(self, body: dict[str, Any], prompt: list[int]) -> tuple[Any, list[int]]:
        """The cache of the blocks that an earlier prompt of this model shares, and the rest."""
        from transformers import DynamicCache

        known = self.prefixes.get((body["model"], body.get("cache_salt", "")))
        if not self.has_prefix_cache or known is None:
            return DynamicCache(config=self.model.config), prompt
        ids, cache = known
        shared = 0
        while shared < min(len(ids), len(prompt) - 1) and ids[shared] == prompt[shared]:
            shared += 1
        shared -= shared % _BLOCK
        cache = copy.deepcopy(cache)
        if shared < len(ids):
            cache.crop(shared - len(ids))
        return cache, prompt[shared:]

    def _keep_prefix(self, body: dict[str, Any], prompt: list[int], cache: Any) -> None:
        if self.has_prefix_cache:
            place = (body["model"], body.get("cache_salt", ""))
            self.prefixes.setdefault(place, (prompt, copy.deepcopy(cache)))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    weights: Weights
    requests: int = 0

    def do_GET(self) -> None:
        weights = self.weights
        models = [{"id": weights.folder, "root": weights.folder, "parent": None}]
        models += [{"id": name, "parent": weights.folder} for name in weights.adapters]
        self._reply(
            *{
                "/health": (200, {}),
                "/version": (200, {"version": "0.32.0"}),
                "/v1/models": (200, {"object": "list", "data": models}),
                "/weight_info": (200, {"weight_version": weights.version}),
            }.get(self.path, (404, {"detail": "Not Found"}))
        )

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length) or b"{}")
        path = self.path.partition("?")[0]
        key = os.environ.get("VLLM_API_KEY")
        if key and path.startswith("/v1") and self.headers["Authorization"] != f"Bearer {key}":
            self._reply(401, {"error": "Unauthorized"})
        elif path == "/v1/completions":
            self._complete(body)
        elif path == "/v1/load_lora_adapter":
            self._load(body)
        elif path == "/collective_rpc":
            self.weights.reload(Path(body["kwargs"]["weights_path"]))
            self._reply(200, {"results": [None]})
        elif path == "/update_weight_version":
            self.weights.version = body["new_version"]
            self._reply(200, {})
        elif path == "/reset_prefix_cache":
            self.weights.prefixes.clear()
            self._reply(200, {})
        elif path in ("/pause", "/resume"):
            self._reply(200, {})
        else:
            self._reply(404, {"detail": "Not Found"})

    def _complete(self, body: dict[str, Any]) -> None:
        if not self.weights.find(body["model"]):
            message = f"The model `{body['model']}` does not exist."
            self._reply(404, {"error": {"message": message, "type": "NotFoundError", "code": 404}})
            return
        self.weights.in_flight += 1
        try:
            choice = self.weights.sample(body)
        finally:
            self.weights.in_flight -= 1
        self._reply(200, {"id": "cmpl", "object": "text_completion", "choices": [choice]})

    def _load(self, body: dict[str, Any]) -> None:
        name, path = body["lora_name"], Path(body["lora_path"])
        if name in self.weights.adapters and not body.get("load_inplace"):
            message = f"The lora adapter '{name}' has already been loaded."
            self._reply(400, {"error": {"message": message, "code": 400}})
        elif not (path / "adapter_config.json").is_file():
            self._reply(404, {"error": {"message": f"No adapter found for {path}", "code": 404}})
        else:
            self.weights.load(name, path)
            self._reply(200, {"message": f"Success: LoRA adapter '{name}' added successfully."})

    def _reply(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


def server_of(weights: Weights, port: int = 0) -> ThreadingHTTPServer:
    """A server that is not serving yet, on this port or a free one."""
    handler = type("OwnHandler", (Handler,), {"weights": weights})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    return server


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fault", choices=FAULTS, default="")
    parser.add_argument("--prefix-cache", action="store_true")
    given, _ = parser.parse_known_args()
    weights = Weights(given.model, given.fault, has_prefix_cache=given.prefix_cache)
    server = server_of(weights, given.port)
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
