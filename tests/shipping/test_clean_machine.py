"""The shipped files load where Sparring is not installed: transformers with peft, and llama.cpp."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sparring.shipping.artefacts import Artefact
from sparring.shipping.cards import SIGN, VERIFY
from sparring.shipping.source import Source

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

WITH_TRANSFORMERS = """
import importlib.util, json, sys
assert importlib.util.find_spec("sparring") is None
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
merged, adapter, base = sys.argv[1:]
messages = [{"role": "user", "content": "hello Ada 123"}]
found = []
for folder in (merged, adapter):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    if folder == merged:
        model = AutoModelForCausalLM.from_pretrained(merged)
    else:
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    with torch.inference_mode():
        found.append(model(**ids).logits[0, -1].tolist())
print(json.dumps(max(abs(a - b) for a, b in zip(*found))))
"""
WITH_LLAMA_CPP = """
import importlib.util, json, sys, urllib.request
assert importlib.util.find_spec("sparring") is None
import xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.use_jinja = True
server = xllamacpp.Server(parameters)
body = {"messages": [{"role": "user", "content": "hello Ada 123"}], "max_tokens": 4}
request = urllib.request.Request(
    server.listening_address + "/v1/chat/completions", data=json.dumps(body).encode(),
    headers={"Content-Type": "application/json"},
)
print(json.load(urllib.request.urlopen(request))["usage"]["completion_tokens"])
"""


def run_in_venv(place: Path, packages: list[list[str]], script: str, *arguments: object) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = str(place / "bin" / "python")
    for each in packages:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *each], check=True)
    command = [python, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1]


def test_transformers_and_peft_load_adapter_and_merged_model_alike(
    artefacts: dict[str, Artefact], source: Source, tmp_path: Path
) -> None:
    packages = [["torch==2.13.0"], ["transformers==5.22.2", "peft==0.21.2"]]
    folders = (artefacts["merged"].place, artefacts["adapter"].place, source.base_place)
    gap = run_in_venv(tmp_path / "venv", packages, WITH_TRANSFORMERS, *folders)
    assert json.loads(gap) < 1e-4


def test_an_older_transformers_loads_the_tokenizer(
    artefacts: dict[str, Artefact], tmp_path: Path
) -> None:
    script = (
        "import sys; from transformers import AutoTokenizer as T; "
        "t = T.from_pretrained(sys.argv[1]); m = [{'role': 'user', 'content': 'hi'}]; "
        "print(t.apply_chat_template(m, tokenize=False, add_generation_prompt=True).count('<|'))"
    )
    place = artefacts["merged"].place
    packages = [["transformers==4.57.6", "jinja2"]]
    assert run_in_venv(tmp_path / "venv", packages, script, place) == "3"


def test_the_package_of_llama_cpp_serves_the_file(
    artefacts: dict[str, Artefact], tmp_path: Path
) -> None:
    gguf = artefacts["gguf q8_0"].place
    found = run_in_venv(tmp_path / "venv", [["xllamacpp"]], WITH_LLAMA_CPP, gguf)
    assert int(found) == 4


def test_the_printed_commands_sign_the_folder_and_notice_a_change(tmp_path: Path) -> None:
    place = tmp_path / "shipped"
    place.mkdir()
    (place / "README.md").write_text("a model")
    (place / "ship.json").write_text("{}")
    environment = tmp_path / "venv"
    run_in_venv(environment, [["model-signing", "pyOpenSSL"]], "print(1)")
    key = "openssl ecparam -name prime256v1 -genkey -noout -out ../KEY.pem"
    public = "openssl ec -in ../KEY.pem -pubout -out ../KEY.pub.pem"

    def code_of(command: str) -> int:
        path = f"{environment / 'bin'}:{os.environ['PATH']}"
        given = {**os.environ, "PATH": path}
        return subprocess.run(shlex.split(command), cwd=place, env=given, check=False).returncode

    assert [code_of(each) for each in (key, public, SIGN, VERIFY)] == [0, 0, 0, 0]
    (place / "README.md").write_text("another model")
    assert code_of(VERIFY) != 0
