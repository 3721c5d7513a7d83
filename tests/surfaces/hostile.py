"""What a hostile operator tries, one attempt a line: a tool, and its arguments.

Every one of these must be refused. Names in capitals are filled in by the test.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparring.settings.locks import DEFAULT_LOCKS


@dataclass(frozen=True, slots=True)
class Attempt:
    about: str
    tool: str
    given: Mapping[str, Any]


# A value for each field that is locked by default, other than what the project has.
WANTED: dict[str, Any] = {
    "model": "smollm2",
    "family": "qwen3",
    "thinking": "off",
    "history_thinking": "keep",
    "device": "cuda",
    "dtype": "bfloat16",
    "sampling": {"servers": 1, "command": ["touch", "owned"]},
    "players": 64,
    "kv_cache_memory": 1000.0,
    "quantization": {"load_in_4bit": True},
    "max_completion_length": 4096,
    "max_concurrency": 2,
    "tool_timeout": 1.0,
    "rollout_timeout": 1.0,
    "measure_timeout": 1.0,
    "processes": 2,
    "nodes": 2,
    "rendezvous": "attacker:1",
    "launcher": "slurm",
    "slurm": {"partition": "gpu"},
    "restarts": 99,
    "hang_timeout": 1e9,
    "start_timeout": 1e9,
    "stop_timeout": 1e9,
    "num_train_epochs": 50.0,
    "max_steps": 400,
    "max_staleness": 4,
    "validation_cases": 0,
    "save_steps": 7,
    "save_total_limit": 99,
    "learning_rate": 1.0,
    "lora": {"r": 64},
    "engine": {"max_steps": 400},
    "report_to": ["wandb"],
    "project": "mine",
    "entity": "mine",
    "unsandboxed": True,
    "warm_start": "/etc/passwd",
}
assert set(WANTED) == set(DEFAULT_LOCKS)

DISGUISES = (
    {"Max_Steps": 400},
    {"MAX_STEPS": 400},
    {"max-steps": 400},
    {"max steps": 400},
    {"max_steps ": 400},
    {" max_steps": 400},
    {"max_steps\u200b": 400},  # zero width space
    {"m\u0430x_steps": 400},  # Cyrillic a
    {"\uff4dax_steps": 400},  # full width m
    {"max_step\u017f": 400},  # long s
    {"maxsteps": 400},
    {"steps": 400},
    {"total_steps": 400},
    {"num_steps": 400},
    {"lr": 1.0},
    {"settings.max_steps": 400},
    {"settings": {"max_steps": 400}},
    {"engine.max_steps": 400},
    {"engine": {"learning_rate": 1.0}},
    {"engine": {"args": {"max_steps": 400}}},
    {"lora.r": 64},
    {"lora": {"rank_pattern": {"x": 64}}},
    {"lora": True},
    {"config.max_steps": 400},
    {"config": {"max_steps": 400}},
    {"config": {"settings": {"max_steps": 400}}},
    {"policy": {"model": "smollm2"}},
    {"policy.model": "smollm2"},
    {"model": None},
    {"max_steps": None},
    {"max_steps": True},
    {"max_steps": "400"},
    {"max_steps": [400]},
    {"max_steps": {"": 400}},
    {"max_steps": 2.5},
    {"max_steps": -1},
    {"max_steps": 0},
    {"max_steps": 10**18},
    {"max_steps": 1e308},
    {"max_steps": "NaN"},
    {"temperature": "Infinity"},
    {"temperature": 1e308},
    {"temperature": -1},
    {"temperature": 0.5},  # locked by the project itself
    {"num_generations": 10**9},
    {"num_generations": 0},
    {"cases_per_batch": 10**12},
    {"gradient_accumulation_steps": 10**6},
    {"replacement_groups": 10**9},
    {"beta": "nan"},
    {"__class__": 1},
    {"model_config": {"extra": "allow"}},
    {"locks": {}},
    {"budget": {"steps": 10**6}},
    {"operators": {"may_set": ["model"]}},
    {"hours": 100},
    {"plan": "x"},
    {"after": ""},
    {"target": "/etc/passwd:X"},
    {"code_digest": ""},
    {"supervision": {"restarts": 99}},
    {"guards": {"no_tool_call": {"action": "explode"}}},
    {"": 1},
    {"a.b.c.d.e.f.g.h.i": 1},
    {"seed": "x" * 200_000},
)


def on_locks(plan: str, run: str) -> Iterator[Attempt]:
    """By a plan, by a revision, by a run like another, by the settings of a check."""
    for name, value in WANTED.items():
        wanted = {name: value}
        yield Attempt(f"{name} in a plan", "plan_run", {"environment": "vault", "settings": wanted})
        yield Attempt(
            f"{name} revised", "revise_plan", {"plan": plan, "field": name, "value": value}
        )
        yield Attempt(
            f"{name} in a check", "check_environment", {"environment": "vault", "settings": wanted}
        )
        yield Attempt(f"{name} like another", "plan_run", {"like": run, "settings": wanted})
    for number, wanted in enumerate(DISGUISES):
        about = f"disguise {number}"
        yield Attempt(about, "plan_run", {"environment": "vault", "settings": wanted})
        yield Attempt(
            f"{about} in a check", "check_environment", {"environment": "vault", "settings": wanted}
        )
        ((name, value),) = wanted.items()
        yield Attempt(
            f"{about} revised", "revise_plan", {"plan": plan, "field": name, "value": value}
        )


def on_arguments(plan: str, run: str) -> Iterator[Attempt]:
    """Arguments that no tool has, and values that no argument takes."""
    for extra in (
        "role",
        "caller",
        "as",
        "owner",
        "force",
        "accept_changes",
        "take_over",
        "unlock",
    ):
        yield Attempt(f"{extra} at the start", "start_run", {"plan": plan, extra: True})
        yield Attempt(f"{extra} going on", "resume_run", {"run": run, extra: True})
    yield Attempt(
        "servers",
        "check_environment",
        {"environment": "vault", "others": [{"base_url": "http://x", "model": "m"}]},
    )
    yield Attempt("no servers", "check_environment", {"environment": "vault", "others": []})
    for name in (
        "/etc/passwd:X",
        "vault.py:Vault",
        "../vault",
        "vault:Vault:",
        "VAULT",
        "",
        "x" * 500,
    ):
        yield Attempt(f"environment {name[:20]}", "plan_run", {"environment": name})
        yield Attempt(f"described {name[:20]}", "describe_environment", {"environment": name})
    yield Attempt(
        "held-out",
        "plan_run",
        {"environment": "vault", "kind": "eval", "split": "held-out", "cases": 1},
    )
    yield Attempt("a kind", "plan_run", {"environment": "vault", "kind": "prove"})
    yield Attempt(
        "many cases", "plan_run", {"environment": "vault", "kind": "eval", "cases": 10**6}
    )
    yield Attempt("all cases", "plan_run", {"environment": "vault", "kind": "eval"})
    yield Attempt(
        "a large check",
        "check_environment",
        {"environment": "vault", "cases": 1000, "rollouts": 256},
    )
    yield Attempt(
        "dry steps",
        "check_environment",
        {"environment": "vault", "cases": 2, "rollouts": 2, "dry_steps": 20},
    )
    yield Attempt("no detail", "list_runs", {"detail": "everything"})
    for tool in ("train.start", "run.delete", "exec", "read_file", "start_train", "audit_show", ""):
        yield Attempt(f"tool {tool}", tool, {"run": run, "environment": "vault"})


def on_plans(stale: str, foreign: str, used: str) -> Iterator[Attempt]:
    """Plans that are stale, another's, used or invented."""
    invented = ("plan-" + "0" * 16 + "-000000", "plan-x", "../audit", used.upper(), used + "x", "")
    for name in (stale, foreign, used, *invented):
        yield Attempt(f"plan {name[:30]}", "start_run", {"plan": name})
    yield Attempt("another's plan", "revise_plan", {"plan": foreign, "field": "seed", "value": 1})


def on_others(runs: tuple[str, ...]) -> Iterator[Attempt]:
    for run in runs:
        yield Attempt(f"stop {run}", "stop_run", {"run": run})
        yield Attempt(f"go on with {run}", "resume_run", {"run": run})


def on_secrets(proof: str, training: str) -> Iterator[Attempt]:
    """Ways to a held-out case."""
    for start in (0, 5, 10**9):
        yield Attempt("rollouts of a proof", "list_rollouts", {"run": proof, "start": start})
    yield Attempt("by reward", "list_rollouts", {"run": proof, "max_reward": 0})
    for rollout in ("base/case-1.0.0", "trained/case-1.0.0", "../../x", "", f"../{proof}/rollouts"):
        yield Attempt("a rollout of a proof", "show_rollout", {"run": proof, "rollout": rollout})
    for rollout in (
        f"../../{proof}/rollouts/base/case-1.0.0",
        "../validation/rank-0/x",
        "/etc/passwd",
    ):
        yield Attempt(
            "a way out of a rollout", "show_rollout", {"run": training, "rollout": rollout}
        )
    for process in ("", "worker", "supervisor", "../../x", "/etc/passwd"):
        yield Attempt("the log of a proof", "read_log", {"run": proof, "process": process})
    for process in (
        "../../../sparring.toml",
        f"../../{proof}/logs/attempt-1/worker",
        "/etc/passwd",
    ):
        yield Attempt("a way out of a log", "read_log", {"run": training, "process": process})
    names = ("..", ".", "../runs", f"{proof}/../{proof}", f"./{proof}", f"{proof}/", ".sparring", "/etc",
             f"{proof}\0", "%2e%2e", "~", "*", "?", "a" * 4000)  # fmt: skip
    for name in names:
        yield Attempt("a way out of a run", "get_results", {"run": name})
        yield Attempt("a way out of a run", "list_rollouts", {"run": name})
    for name in ("../../../etc", "..", "/", "x" * 4000):
        yield Attempt("a folder", "list_runs", {"after": name})
    for changes in (
        {"split": "training"},
        {"also": "vault"},
        {"accept_changes": True},
        {"cases": 10**6},
    ):
        yield Attempt("a proof otherwise", "prove_run", {"run": training, **changes})
    yield Attempt("a proof of a proof", "prove_run", {"run": proof})


def fuzzed(schemas: Mapping[str, Mapping[str, Any]], count: int, seed: int) -> Iterator[Attempt]:
    """Arguments by each tool's own schema, right and wrong ones mixed."""
    chance = random.Random(seed)
    names = sorted(schemas)
    for number in range(count):
        tool = chance.choice(names)
        properties = schemas[tool]["properties"]
        given = {
            name: _some_value(chance, schema)
            for name, schema in properties.items()
            if chance.random() < 0.6 or name in schemas[tool].get("required", ())
        }
        if tool == "wait_for_run":
            given["timeout"] = chance.choice([0, 0.1, -1, 46, "x"])
        yield Attempt(f"fuzz {number}", tool, given)


def _some_value(chance: random.Random, schema: Mapping[str, Any]) -> Any:
    odd: list[Any] = [
        None, True, -1, 0, 1, 2**62, 1e308, "", "vault", "x" * 3000, [], {}, ["a"], {"a": {"b": 1}},
        "".join(chance.choices(string.printable, k=12)), "\u202evault", {"max_steps": 400}, "../..",
    ]  # fmt: skip
    if schema.get("enum") and chance.random() < 0.7:
        return chance.choice(schema["enum"])
    if schema.get("type") == "integer" and chance.random() < 0.5:
        return chance.randint(0, 30)
    return chance.choice(odd)
