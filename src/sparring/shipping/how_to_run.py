"""Writes the commands that serve a shipped model, and the lines that point an agent at it.

The names of vLLM's parsers of tool calls and thinking are those of version 0.32
(`vllm/tool_parsers`, `vllm/reasoning`); `tests/shipping/test_how_to_run.py` looks them up if vLLM
is installed. llama.cpp derives a parser from the template; the same tests show which families'
calls its server parses.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparring.contracts.kinds import Form
from sparring.policies.families import Family
from sparring.policies.gemma_calls import GemmaCalls
from sparring.policies.harmony_calls import HarmonyCalls
from sparring.policies.python_calls import PythonCalls
from sparring.policies.text_calls import FunctionTags, KeyValueTags
from sparring.policies.tool_calls import BareJson, TaggedJson, ToolCallFormat

_VLLM_CALLS: tuple[tuple[ToolCallFormat, str], ...] = (
    (TaggedJson(), "hermes"),
    (BareJson(), "llama3_json"),
    (FunctionTags(), "qwen3_coder"),
    (KeyValueTags(), "glm45"),
    (PythonCalls(), "lfm2"),
    (HarmonyCalls(), "openai"),
    (GemmaCalls(), "gemma4"),
)
_VLLM_THINKING = {
    "qwen": "qwen3",
    "nemotron": "nemotron_v3",
    "glm": "glm45",
    "gpt-oss": "openai_gptoss",
    "gemma4": "gemma4",
}
_UNREAD_BY_LLAMA_CPP = (KeyValueTags(),)
_OLLAMA_EXAMPLES = (
    "The Modelfile does not hold the worked examples: its MESSAGE lines have no form for tool "
    "calls, and Ollama would put them before the instructions of every request. Requests send the "
    "examples, as below."
)
_VLLM_RANK = 16  # vLLM's default maximum; larger ranks need an option
_PORT = {"vllm": 8000, "llama": 8080, "ollama": 11434}


def vllm_call_parser(family: Family) -> str:
    """Return vLLM's name for the parser of the family's tool calls; empty if none is known."""
    return next((name for form, name in _VLLM_CALLS if form == family.tool_calls), "")


def vllm_reasoning_parser(family: Family) -> str:
    """Return vLLM's name for the parser that separates the family's thinking from the answer; empty
    if none is known. Some parsers, such as qwen3, treat an answer without thinking as thinking, so
    they suit only models that think."""
    if family.thinking is None:
        return ""
    return next((name for at, name in _VLLM_THINKING.items() if family.name.startswith(at)), "")


def is_read_by_llama_cpp(family: Family) -> bool:
    """Return False if, in tests, llama.cpp's server did not parse the family's tool calls."""
    return family.tool_calls not in _UNREAD_BY_LLAMA_CPP


@dataclass(frozen=True, slots=True)
class Runnable:
    """The facts about a shipment that its commands depend on. `gguf` is the path of a GGUF file;
    empty if there is none."""

    name: str
    family: Family
    base: str
    is_base_public: bool
    context: int
    has_adapter: bool = False
    adapter_rank: int = 0
    has_merged: bool = False
    gguf: str = ""
    has_ollama: bool = False
    has_tools: bool = True
    thinks: bool = False
    has_instructions: bool = True
    examples: int = 0

    @property
    def base_argument(self) -> str:
        """The base as a command argument; a placeholder if the base is not public."""
        return self.base if self.is_base_public else "FOLDER_OF_THE_BASE"

    @property
    def port(self) -> int:
        """The port in the agent's lines: llama-server's if there is a GGUF file, else vLLM's."""
        return _PORT["llama"] if self.gguf else _PORT["vllm"]


def commands(shipped: Runnable) -> dict[str, str]:
    """Return the commands that serve the shipped forms, by the name of the program."""
    found: dict[str, str] = {}
    if shipped.has_merged:
        arguments = vllm_arguments(shipped, Form.MERGED, folder="./merged")
        found["vLLM"] = " ".join(["vllm", *arguments])
    if shipped.has_adapter:
        arguments = vllm_arguments(
            shipped,
            Form.ADAPTER,
            folder="./adapter",
            base=shipped.base_argument,
            template="./chat_template.jinja",
        )
        found["vLLM with the adapter"] = " ".join(["vllm", *arguments])
    if shipped.gguf:
        found["llama-server"] = (
            f"llama-server -m {shipped.gguf} --jinja --alias {shipped.name} -c {shipped.context}"
        )
    if shipped.has_ollama:
        found["Ollama"] = (
            f"cd gguf && ollama create {shipped.name} -f Modelfile && ollama run {shipped.name}"
        )
    if shipped.has_merged:
        found["transformers"] = "transformers serve ./merged --port 8000"
    return found


def agent_lines(name: str, port: int) -> str:
    """Return the three lines that point an agent of the openai-agents SDK at a server."""
    return (
        f'client = AsyncOpenAI(base_url="http://127.0.0.1:{port}/v1", api_key="none")\n'
        f'model = OpenAIChatCompletionsModel(model="{name}", openai_client=client)\n'
        "agent = agent.clone(model=model)"
    )


def client_lines(shipped: Runnable) -> str:
    """Return a program that answers a question with the `openai` package, by `agent.json` alone
    besides the tools themselves."""
    system = '    {"role": "system", "content": agent["instructions"]},'
    request = f'client.chat.completions.create(model="{shipped.name}", messages=messages'
    lines = [
        "import json\n\nfrom openai import OpenAI\n",
        *(["TOOLS = {}  # your functions, by the names of the tools"] if shipped.has_tools else []),
        'shipped = json.load(open("agent.json"))',
        'agent = shipped["agents"][0]',
        f'client = OpenAI(base_url="http://127.0.0.1:{shipped.port}/v1", api_key="none")',
        "messages = [",
        *([system] if shipped.has_instructions else []),
        *(['    *shipped["examples"],'] if shipped.examples else []),
        '    {"role": "user", "content": "YOUR QUESTION"},',
        "]",
    ]
    if shipped.has_tools:
        lines += [
            "while True:",
            f'    completion = {request}, tools=agent["tools"])',
            "    reply = completion.choices[0].message",
            "    if not reply.tool_calls:",
            "        break",
            '    messages.append({"content": "", **reply.model_dump(exclude_none=True)})',
            "    for call in reply.tool_calls:",
            "        result = TOOLS[call.function.name](**json.loads(call.function.arguments))",
            '        told = {"tool_call_id": call.id, "content": str(result)}',
            '        messages.append({"role": "tool", **told})',
        ]
    else:
        lines.append(f"reply = {request}).choices[0].message")
    return "\n".join([*lines, "print(reply.content)"])


_ITEMS = """

def items(messages):
    # The messages as input items of the SDK.
    for each in messages:
        if each["role"] == "tool":
            result = {"call_id": each["tool_call_id"], "output": each["content"]}
            yield {"type": "function_call_output", **result}
        elif each["content"]:
            yield {"role": each["role"], "content": each["content"]}
        for call in each.get("tool_calls", ()):
            yield {"type": "function_call", "call_id": call["id"], **call["function"]}


"""


def sdk_lines(shipped: Runnable) -> str:
    """Return a program that runs your `agent` of the openai-agents SDK on the served model."""
    imports = (
        "from agents import OpenAIChatCompletionsModel, Runner, set_tracing_disabled\n"
        "from openai import AsyncOpenAI\n"
    )
    model = f"set_tracing_disabled(True)\n{agent_lines(shipped.name, shipped.port)}\n"
    if not shipped.examples:
        return f'{imports}\n{model}result = Runner.run_sync(agent, "YOUR QUESTION")'
    return (
        f"import json\n\n{imports}{_ITEMS}{model}"
        'examples = list(items(json.load(open("agent.json"))["examples"]))\n'
        'question = {"role": "user", "content": "YOUR QUESTION"}\n'
        "result = Runner.run_sync(agent, [*examples, question])"
    )


def _what_to_send(shipped: Runnable) -> str:
    if not shipped.examples:
        return (
            "`agent.json` has the instructions and the tool schemas that were trained. Send both "
            "unchanged: a small model can fail when the prompt is worded differently."
        )
    shown = "worked example" if shipped.examples == 1 else f"{shipped.examples} worked examples"
    return (
        f"`agent.json` has the instructions, the tool schemas and the {shown} that the model was "
        "trained and measured with. Send all of them unchanged, in this order, before the "
        "question: without the examples, a small model may do nothing of what it has learned."
    )


def how_to_run(shipped: Runnable) -> str:
    """Return the text of `how_to_run.md`."""
    parts = [
        f"# How to run {shipped.name}",
        "Start one server, then point the agent at it. All commands run in this folder.",
    ]
    for program, command in commands(shipped).items():
        parts += [f"## {program}", f"```bash\n{command}\n```", *_notes(program, shipped)]
    if shipped.has_merged:
        parts += ["## In Python, with transformers", f"```python\n{_transformers()}\n```"]
    if shipped.has_adapter:
        parts += ["## In Python, with the adapter", f"```python\n{_peft(shipped)}\n```"]
        parts += ["## The adapter in llama.cpp", *_llama_adapter(shipped)]
    parts += [
        "## Your agent",
        _what_to_send(shipped),
        "With the `openai` package, or any client of an OpenAI-compatible server; the port is the "
        "server's (vLLM 8000, llama-server 8080, Ollama 11434):",
        f"```python\n{client_lines(shipped)}\n```",
        "With the openai-agents SDK:",
        f"```python\n{sdk_lines(shipped)}\n```",
        f"Looking for `litellm/ollama_chat/{shipped.name}`? litellm requires `openai<3`, and the "
        "SDK `openai>=3`, so they cannot be installed together; the lines above need no litellm.",
    ]
    return "\n\n".join(parts) + "\n"


def vllm_arguments(
    shipped: Runnable, form: Form, *, folder: str, base: str = "", template: str = ""
) -> list[str]:
    """Return the arguments of `vllm` that serve the merged model or the adapter in `folder`. For an
    adapter, pass its base and the template's path: vLLM would use the base's template."""
    if form is Form.ADAPTER:
        arguments = ["serve", base, "--enable-lora"]
        if shipped.adapter_rank > _VLLM_RANK:
            arguments += ["--max-lora-rank", str(_vllm_rank(shipped.adapter_rank))]
        arguments += ["--lora-modules", f"{shipped.name}={folder}", "--chat-template", template]
    else:
        arguments = ["serve", folder, "--served-model-name", shipped.name]
    arguments += ["--max-model-len", str(shipped.context)]
    if shipped.has_tools and (parser := vllm_call_parser(shipped.family)):
        arguments += ["--enable-auto-tool-choice", "--tool-call-parser", parser]
    if shipped.thinks and (parser := vllm_reasoning_parser(shipped.family)):
        arguments += ["--reasoning-parser", parser]
    return arguments


def _vllm_rank(rank: int) -> int:
    """Return the smallest maximum rank that vLLM accepts and that is at least `rank`."""
    return next((each for each in (32, 64, 128, 256, 320) if each >= rank), 512)


def _notes(program: str, shipped: Runnable) -> list[str]:
    if program.startswith("vLLM"):
        return _vllm_notes(program, shipped)
    if program == "llama-server":
        return _llama_notes(shipped)
    if program == "Ollama":
        return [
            "Ollama 0.30 or newer, which uses the template in the GGUF file.",
            *([_OLLAMA_EXAMPLES] if shipped.examples else []),
        ]
    if program == "transformers" and shipped.has_tools:
        return [
            "The server samples with the folder's `generation_config.json`; requests name the "
            "model `./merged`. For some families it returns tool calls as text: for an agent with "
            "tools, use another server."
        ]
    return []


def _vllm_notes(program: str, shipped: Runnable) -> list[str]:
    family, notes = shipped.family, []
    if program == "vLLM with the adapter" and not shipped.is_base_public:
        notes.append(
            f"The base, {shipped.base}, is not on a hub: serve its folder, or use the merged model."
        )
    if shipped.has_tools and not vllm_call_parser(family):
        notes.append(
            f"vLLM has no known parser for the tool calls of {family.name}: they arrive as text. "
            "To add a parser, use its option `--tool-parser-plugin`."
        )
    if isinstance(family.tool_calls, HarmonyCalls):
        notes.append(
            "vLLM writes the prompts of this family itself and states today's date. Set "
            "`VLLM_SYSTEM_START_DATE=2025-08-05`, the date that the model was trained with."
        )
    if shipped.thinks and not vllm_reasoning_parser(family):
        notes.append(
            f"vLLM has no known parser for the thinking of {family.name}: the thinking arrives as "
            "part of the answer."
        )
    return notes


def _llama_notes(shipped: Runnable) -> list[str]:
    notes = [
        "`-c` is the context of all `--parallel` requests together. The file sets temperature, "
        "top_k, top_p and min_p."
    ]
    if shipped.has_tools and not is_read_by_llama_cpp(shipped.family):
        notes.append(
            f"In tests, llama.cpp's server did not parse the tool calls of {shipped.family.name}: "
            "for an agent with tools, use vLLM."
        )
    return notes


def _llama_adapter(shipped: Runnable) -> list[str]:
    return [
        "llama.cpp loads adapters as GGUF. Its own scripts convert base and adapter. Name the "
        "template, because an adapter in GGUF contains none:",
        "```bash\n"
        f"python convert_lora_to_gguf.py ./adapter --base {shipped.base_argument} "
        f"--outfile adapter.gguf\n"
        "llama-server -m BASE.gguf --lora adapter.gguf --jinja --chat-template-file "
        f"chat_template.jinja --alias {shipped.name} -c {shipped.context}\n```",
    ]


def _transformers() -> str:
    return (
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'tokenizer = AutoTokenizer.from_pretrained("merged")\n'
        'model = AutoModelForCausalLM.from_pretrained("merged")\n'
        "inputs = tokenizer.apply_chat_template(\n"
        '    messages, tools=tools, add_generation_prompt=True, return_tensors="pt",\n'
        "    return_dict=True,\n"
        ")\n"
        "output = model.generate(**inputs, max_new_tokens=256)"
    )


def _peft(shipped: Runnable) -> str:
    return (
        "from peft import PeftModel\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'tokenizer = AutoTokenizer.from_pretrained("adapter")  # its template, not the base\'s\n'
        f'base = AutoModelForCausalLM.from_pretrained("{shipped.base_argument}")\n'
        'model = PeftModel.from_pretrained(base, "adapter")'
    )
