"""The runs whose bits are compared: `python benchmarks/bits_runs.py FOLDER NAME…`.

Each run is a function that writes its folders below the given one, with the tiny model and fixed
seeds. It uses only what users use, so that two versions of the code can run it. The libraries are
imported once; every run is a fork of this process, which has not computed anything yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import signal
import socket
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from agents import Agent, Runner, function_tool
from openai import AsyncOpenAI

from sparring import Suite, Trainer, evaluate, failed, measure, passed, tool
from sparring.contracts.policies import ParsedCall, Reply, Sampling
from sparring.policies.families import family_named
from sparring.policies.pretrained import locate
from sparring.policies.tool_calls import TaggedJson

ROOT = Path(__file__).resolve().parents[1]
RUNS: dict[str, Callable[[Path], Any]] = {}
BELL = ROOT / "examples" / "bell"
COMMAND_LINE = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
# A random model ends its turns only if many tokens end a turn.
TALKATIVE = replace(family_named("qwen3"), also_stops=tuple(string.ascii_lowercase[:6]))


class CallsByWords(TaggedJson):
    """Reads a call of one of the offered tools, or an answer, from any words: a random model writes
    no calls of its own."""

    def parse(self, text: str, tools: Any = ()) -> Reply:
        """Return the answer or the call that the words' digest selects."""
        names = [each["function"]["name"] for each in tools]
        number = hashlib.sha256(text.encode()).digest()[0]
        if not names or number % 4 == 0:
            return Reply(text.strip())
        words = json.dumps({"input": re.sub(r"[^a-z]", "", text)[:6]})
        return Reply("", calls=(ParsedCall(names[number % len(names)], words),))


CALLING = replace(TALKATIVE, also_stops=tuple(string.ascii_letters), tool_calls=CallsByWords())


SEEN: list[str] = []  # what `look` was asked for


@function_tool
def look(input: str) -> str:
    """Look something up."""
    SEEN.append(input)
    return f"{len(input)} found"


@function_tool
def count(input: str) -> str:
    """Count the letters."""
    return str(len(set(input)))


@measure
def even(rollout: Any) -> Any:
    """Passes if the words and calls have an even number of characters."""
    characters = len(rollout.answer) + sum(len(call.arguments) for call in rollout.tool_calls)
    return passed(f"{characters}") if characters % 2 == 0 else failed(f"{characters}")


@measure
def short(rollout: Any) -> Any:
    """Passes every answer to an easy case, none to a hard one, and even ones to others."""
    number = int(rollout.case.input.split()[1])
    if number % 3:
        return passed("easy") if number % 3 == 1 else failed("hard")
    return passed("even") if len(rollout.answer) % 2 == 0 else failed("odd")


def questions(number: int = 96) -> Suite:
    """Three quarters for training, the rest for validation."""
    splits = ("training", "training", "training", "validation")
    records = [{"input": f"question {n}", "split": splits[n % 4]} for n in range(number)]
    return Suite.from_records(records)


def talker() -> Agent[Any]:
    return Agent(name="talker", instructions="Talk.")


def clerk() -> Agent[Any]:
    return Agent(name="clerk", instructions="Look it up.", tools=[look, count])


def desk() -> Agent[Any]:
    """An agent that hands off to two others, one of which hands back and asks a third."""
    aide = Agent(name="aide", instructions="Help.", tools=[count])
    helper = aide.as_tool("ask_aide", "Asks the aide.")
    price = Agent(name="price", instructions="Say the price.", tools=[look, helper])
    stock = Agent(name="stock", instructions="Say what is in stock.", tools=[count])
    price.handoffs = [stock]
    return Agent(name="desk", instructions="Hand off.", tools=[look], handoffs=[price, stock])


def trainer(place: Path, agent: Any = None, **options: Any) -> Trainer:
    given: dict[str, Any] = {
        "suite": questions(), "measures": [even], "model": "tiny", "family": TALKATIVE,
        "max_steps": 3, "max_completion_length": 32, "learning_rate": 1e-3, "validation_cases": 0,
        "save_steps": 2, "replacement_groups": 0, "draw_by_difficulty": False,
        "per_device_train_batch_size": 8, "runs": place / "runs", "run": "run",
        "show_progress": False, "guards": {"dead_groups": "warn", "no_tool_call": "warn"},
        **options,
    }  # fmt: skip
    suite, measures = given.pop("suite"), given.pop("measures")
    return Trainer(agent or talker(), suite, measures, **given)


def caller(place: Path, agent: Any = None, **options: Any) -> Trainer:
    """A trainer of an agent with tools."""
    given = {"family": CALLING, "max_turns": 5, "max_completion_length": 512, **options}
    return trainer(place, agent or clerk(), **given)


def run(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
    RUNS[function.__name__] = function
    return function


def keep(place: Path, name: str, value: Any) -> None:
    """Keep what a run returned, beside its folders."""
    (place / f"{name}.json").write_text(json.dumps(value))


# ------------------------------------------------------------------ one process


@run
def plain(place: Path) -> None:
    trainer(place).train()


@run
def validated(place: Path) -> None:
    trainer(place, validation_cases=8, max_steps=4).train()


@run
def lora(place: Path) -> None:
    trainer(place, lora={"r": 4}, learning_rate=1e-2).train()


@run
def tools(place: Path) -> None:
    caller(place).train()


@run
def echo(place: Path) -> None:
    caller(place, echo_coefficient=0.05).train()


@run
def echo_by_sequence(place: Path) -> None:
    caller(place, desk(), echo_coefficient=0.1, echo_normalization="sequence_mean").train()


@run
def shared_prompts(place: Path) -> None:
    agent = Agent(name="clerk", instructions="Look it up, please. " * 40, tools=[look, count])
    caller(place, agent, share_prompts=True, cases_per_batch=3).train()


@run
def unshared_prompts(place: Path) -> None:
    agent = Agent(name="clerk", instructions="Look it up, please. " * 40, tools=[look, count])
    caller(place, agent, share_prompts=False).train()


@run
def live_groups(place: Path) -> None:
    trainer(
        place, measures=[short], replacement_groups=4, draw_by_difficulty=True, max_steps=6,
        cases_per_batch=3, suite=questions(40),
    ).train()  # fmt: skip


@run
def handoffs(place: Path) -> None:
    caller(place, desk()).train()


@run
def some_agents(place: Path) -> None:
    caller(place, desk(), train_agents=["desk", "price"], lora=True).train()


@run
def kl(place: Path) -> None:
    trainer(place, beta=0.1, max_steps=4).train()


@run
def reward_functions(place: Path) -> None:
    def shortness(completion_ids: Any, **_: Any) -> list[float]:
        return [-float(len(ids)) for ids in completion_ids]

    trainer(place, reward_functions=[shortness], weights={"shortness": 0.5}).train()


@run
def masked(place: Path) -> None:
    trainer(place, mask_truncated_completions=True, max_completion_length=12).train()


@run
def unmasked(place: Path) -> None:
    trainer(
        place, mask_truncated_completions=False, max_completion_length=12,
        engine={"scale_rewards": "none", "loss_type": "dapo"},
    ).train()  # fmt: skip


@run
def scaled_by_batch(place: Path) -> None:
    trainer(place, engine={"scale_rewards": "batch"}, max_grad_norm=0.1).train()


@run
def passes(place: Path) -> None:
    caller(
        place, desk(), per_device_train_batch_size=2, gradient_accumulation_steps=3,
        num_generations=3,
    ).train()  # fmt: skip


@run
def users(place: Path) -> None:
    def user(case: Any, world: Any, conversation: Any) -> str | None:
        return f"and {case.input}?" if len(conversation) < 5 else None

    caller(place, user=user, user_messages=2).train()


@run
def worlds(place: Path) -> None:
    @dataclass
    class Shelf:
        items: list[str]

        @tool
        def put(self, input: str) -> str:
            """Put something on the shelf."""
            self.items.append(input)
            return f"{len(self.items)} on the shelf"

    @measure
    def filled(rollout: Any) -> Any:
        number = len(rollout.world.items)
        return passed(f"{number}") if number % 2 else failed(f"{number}")

    caller(place, context=lambda case: Shelf([case.id]), measures=[filled, even]).train()


@run
def warm_start(place: Path) -> None:
    sys.path.insert(0, str(BELL))
    from bell import Bell

    bell = Bell()
    source = {"source": str(BELL / "demonstrations.jsonl"), "num_train_epochs": 4}
    trainer(
        place, bell.agent(), suite=bell.suite(), measures=[*bell.measures, even], family=None,
        warm_start={**source, "learning_rate": 3e-3}, beta=0.1, max_turns=2,
        max_completion_length=128, mask_truncated_completions=False,
    ).train()  # fmt: skip


@run
def trained_agent(place: Path) -> None:
    """What the trained agent answers: by `generate`, by the SDK's Runner, and in evaluations."""
    secrets.randbits = lambda _: 7  # the seed of an agent that is handed back is random
    result = caller(place, desk(), max_steps=2).train()
    given = {"temperature": 1.0, "max_new_tokens": 24}
    prompts = [f"question {number}" for number in range(5)]
    SEEN.clear()
    keep(place, "answers", [answered(lambda p=p: result.generate(p, **given)) for p in prompts])
    keep(place, "calls", SEEN)
    for split, settings in (("training", {}), ("validation", {"user_messages": 1})):
        evaluate(
            desk(), questions(), [even], policy=result.policy, split=split, cases=6,
            num_generations=2, runs=place / "runs", run=f"eval-{split}", show_progress=False,
            user=lambda *_: "go on", max_turns=5, max_completion_length=512, **settings,
        )  # fmt: skip
    talk = trainer(place, run="talk", max_steps=1).train()
    agent = talk.trained_agent(Sampling(temperature=1.0, max_tokens=24))
    keep(place, "conversations", [converse(agent, prompt) for prompt in prompts])


def converse(agent: Agent[Any], prompt: str) -> list[str]:
    """The answers to a question and to a second one that continues it."""
    first = Runner.run_sync(agent, prompt)
    more = {"role": "user", "content": "more?"}
    again = Runner.run_sync(agent, [*first.to_input_list(), more])
    return [str(first.final_output), str(again.final_output)]


def answered(ask: Callable[[], Any]) -> Any:
    """The answer, or the kind of error: a random model may never end."""
    try:
        return ask()
    except Exception as error:
        return type(error).__name__


# ------------------------------------------------------------------ agents behind the gateway


async def play(case: Any, session: Any) -> str:
    """A plain loop with all that a recorder meets: turns with tools, a call that is sent twice, a
    sub-agent, a branch, and a history that is compacted."""
    schema = {"type": "object", "properties": {"input": {"type": "string"}}}
    offered = [
        {"type": "function", "function": {"name": n, "description": n, "parameters": schema}}
        for n in ("look", "count")
    ]
    async with AsyncOpenAI(base_url=session.base_url, api_key=session.api_key) as client:

        async def ask(messages: list[Any], tools: Any = None) -> dict[str, Any]:
            given = {"tools": tools} if tools else {}
            reply = await client.chat.completions.create(
                model=session.model, messages=messages, **given
            )
            return reply.choices[0].message.model_dump(exclude_none=True)

        messages: list[Any] = [{"role": "system", "content": "Look it up."}, *session.messages]
        texts = []
        for turn in range(4):
            reply = await ask(messages, offered)
            texts.append(reply.get("content") or "")
            messages.append(reply)
            if not reply.get("tool_calls"):
                messages.append({"role": "user", "content": f"and {turn}?"})
            for call in reply.get("tool_calls", ()):
                note = await ask([{"role": "user", "content": call["function"]["arguments"]}])
                result = {"role": "tool", "tool_call_id": call["id"], "content": note["content"]}
                messages.append(result)
            if turn == 1:  # an earlier answer is thrown away, and another one is asked for
                await ask([*messages[:3], {"role": "user", "content": "again"}], offered)
            if turn == 2:
                summary = f"so far: {len(messages)} messages"
                messages = [messages[0], {"role": "user", "content": summary}]
        return texts[-1]


@run
def gateway(place: Path) -> None:
    caller(place, play, max_completion_length=768).train()


@run
def gateway_in_passes(place: Path) -> None:
    caller(
        place, play, max_completion_length=768, lora=True, per_device_train_batch_size=3,
        echo_coefficient=0.05, validation_cases=4,
    ).train()  # fmt: skip


# ------------------------------------------------------------------ sampling servers


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server() -> Iterator[str]:
    """The address of the tests' stand-in for a vLLM server, in a process of its own."""
    port = free_port()
    if not (child := os.fork()):
        from tests.sampling_server import Weights, server_of

        server_of(Weights(locate("tiny"), "", has_prefix_cache=False), port).serve_forever()
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@run
def servers(place: Path) -> None:
    with server() as address:
        trainer(place, sampling=[address], lora=True, learning_rate=1e-2).train()


@run
def servers_with_whole_weights(place: Path) -> None:
    with server() as address:
        caller(place, desk(), sampling=[address], validation_cases=4).train()


@run
def stale(place: Path) -> None:
    with server() as address:
        trainer(
            place, sampling=[address], lora=True, learning_rate=5e-2, max_staleness=1, max_steps=5,
            replacement_groups=1, draw_by_difficulty=True, validation_cases=2,
            mask_truncated_completions=False, cases_per_batch=1,
        ).train()  # fmt: skip


# ------------------------------------------------------------------ several processes, and kills


def ranks(place: Path, work: Callable[[], Any], number: int = 2) -> None:
    """Do the work on several ranks, as torchrun would."""
    port, children = str(free_port()), []
    for rank in range(number):
        if not (child := os.fork()):
            os.environ |= {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(number),
                "LOCAL_WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            }  # fmt: skip
            _exit_after(work)
        children.append(child)
    for _ in range(number):
        ended, code = os.wait()
        children.remove(ended)
        if code:  # the others would wait for it
            for child in children:
                os.kill(child, signal.SIGKILL)
        assert not code, f"a rank ended with {code}"


def _exit_after(work: Callable[[], Any]) -> None:
    """Do the work and end this process, without what its parent would do at its end."""
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@run
def two_ranks(place: Path) -> None:
    ranks(place, lambda: trainer(place, processes=2, validation_cases=6).train())


@run
def two_ranks_several_rows(place: Path) -> None:
    """With a loss of which TRL gathers no figures by row: ranks differ in their rows."""

    def work() -> None:
        caller(
            place, desk(), processes=2, lora=True, replacement_groups=2, draw_by_difficulty=True,
            engine={"loss_type": "cispo", "epsilon_high": 5.0},
        ).train()  # fmt: skip

    ranks(place, work)


@run
def killed(place: Path) -> None:
    """Killed in the middle of the fourth step, and continued from the checkpoint of the second."""
    count = 0

    @measure
    def even_and_mortal(rollout: Any) -> Any:
        nonlocal count
        count += 1
        if count == 70 and not (place / "killed").exists():
            (place / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return passed("even") if len(rollout.answer) % 2 == 0 else failed("odd")

    def work() -> None:
        trainer(
            place, measures=[even_and_mortal], max_steps=5, replacement_groups=1,
            draw_by_difficulty=True,
        ).train()  # fmt: skip

    for _ in range(2):
        if not (child := os.fork()):
            _exit_after(work)
        os.waitpid(child, 0)
    assert (place / "killed").exists()


ENVIRONMENT = '''
import os, signal, string
from dataclasses import replace
from pathlib import Path
from agents import Agent
from sparring import Environment, Suite, failed, measure, passed
from sparring.policies.families import family_named

KILLED = Path(__file__).with_name("killed")
count = 0


@measure
def even(rollout):
    global count
    count += 1
    if count == 30 and rollout.case.split == "training" and not KILLED.exists():
        KILLED.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return passed("even") if len(rollout.answer) % 2 == 0 else failed("odd")


class Talk(Environment):
    """Talks."""

    name = "talk"
    measures = (even,)
    family = replace(family_named("qwen3"), also_stops=tuple(string.ascii_lowercase[:6]))

    def agent(self):
        return Agent(name="talker", instructions="Talk.")

    def suite(self):
        splits = ("training", "training", "validation", "held-out")
        return Suite.from_records(
            [{"input": f"question {n}", "split": splits[n % 4]} for n in range(96)]
        )
'''


@run
def command_line(place: Path) -> None:
    """An environment by its name: trained, killed on the way and restarted by its supervisor."""
    (place / "talk.py").write_text(ENVIRONMENT)
    settings = {
        "model": "tiny", "max_steps": 3, "save_steps": 1, "max_completion_length": 24,
        "learning_rate": 1e-3, "validation_cases": 4, "per_device_train_batch_size": 8,
    }  # fmt: skip
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    done = subprocess.run(
        [*COMMAND_LINE, "train", "talk", "--no-prove", *options],
        cwd=place, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (place / "killed").exists()


def main() -> int:
    place, names = Path(sys.argv[1]), sys.argv[2:]
    failures = []
    locate("tiny")
    for name in names:
        folder = place / name
        folder.mkdir(parents=True)
        started = time.monotonic()
        if not (child := os.fork()):
            with (folder / "output").open("w") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                _exit_after(lambda name=name, folder=folder: RUNS[name](folder))
        if os.waitpid(child, 0)[1]:
            failures.append(name)
            print(f"{name} failed:\n{(folder / 'output').read_text()[-3000:]}", file=sys.stderr)
        print(f"{name}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
