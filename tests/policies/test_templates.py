"""Our training templates beside the ones TRL ships: the same text, message for message."""

from importlib.resources import files

import pytest

from sparring.models.tiny import CHATML, LLAMA, build_tokenizer
from sparring.policies.families import family_named

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
]


def called(name, **arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "plain": [{"role": "user", "content": "Hi"}],
    "system": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <b>"}],
    "turns": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "1 + 2?"},
    ],
    "tool": [
        {"role": "user", "content": "1 + 2?"},
        {"role": "assistant", "content": "", "tool_calls": [called("add", a=1, b="ä")]},
        {"role": "tool", "content": "3"},
    ],
    "tools": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 + 2?"},
        {
            "role": "assistant",
            "content": "Both.",
            "tool_calls": [called("add", a=1), called("add", a=2)],
        },
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "7"},
        {"role": "user", "content": "Thanks"},
    ],
    "thinking": [
        {"role": "user", "content": "1 + 2?"},
        {"role": "assistant", "content": "3", "reasoning_content": "easy"},
        {"role": "user", "content": "Sure?"},
    ],
}


def trl_template(name: str) -> str:
    return (files("trl") / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no-tools", "with-tools"])
@pytest.mark.parametrize(
    ("family", "theirs", "special"),
    [
        ("qwen2.5", "qwen2_5_training", CHATML),
        ("qwen3", "qwen3_training", CHATML),
        ("llama3", "llama3_2", LLAMA),
        ("llama3", "llama3_1", LLAMA),
    ],
)
def test_a_training_template_renders_what_trl_renders(family, theirs, special, tools, conversation):
    if family == "llama3" and conversation == "tools":
        pytest.skip("Llama's template refuses several calls at once")
    tokenizer = build_tokenizer(special)
    rendered = [
        tokenizer.apply_chat_template(
            CONVERSATIONS[conversation],
            tools=tools,
            chat_template=template,
            tokenize=False,
            add_generation_prompt=True,
            date_string="26 Jul 2024",
        )
        for template in (family_named(family).template, trl_template(theirs))
    ]
    assert rendered[0] == rendered[1]


@pytest.mark.parametrize("family", ["qwen2.5", "qwen3", "llama3", "smollm2"])
def test_a_training_template_is_prefix_preserving(family):
    tokenizer = build_tokenizer(LLAMA if family == "llama3" else CHATML)
    template = family_named(family).template
    for name, messages in CONVERSATIONS.items():
        if family == "llama3" and name == "tools":
            continue
        whole = tokenizer.apply_chat_template(
            messages, tools=TOOLS, chat_template=template, tokenize=False
        )
        for length in range(1, len(messages)):
            if messages[length - 1]["role"] == "system" or messages[length]["role"] == "tool":
                continue
            part = tokenizer.apply_chat_template(
                messages[:length], tools=TOOLS, chat_template=template, tokenize=False
            )
            assert whole.startswith(part), (name, length)


def test_without_tools_smollm2_renders_what_its_own_template_renders():
    own = (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
        "trained by Hugging Face<|im_end|>\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    tokenizer = build_tokenizer()
    for name in ("plain", "system", "turns"):
        ours, theirs = (
            tokenizer.apply_chat_template(
                CONVERSATIONS[name],
                chat_template=template,
                tokenize=False,
                add_generation_prompt=True,
            )
            for template in (family_named("smollm2").template, own)
        )
        assert ours == theirs
