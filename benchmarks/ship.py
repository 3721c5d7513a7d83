"""Ships a trained model in every format, and prints size, seconds, gap and mean reward of each.

    python benchmarks/ship.py --project FOLDER --run RUN [--quants q8_0,f16] [--quick] [--vllm]

Without a run, it first trains SmolLM2 on the calculator, which takes about half an hour on two
cores. Then an agent of the openai-agents SDK, pointed at each server with the lines that the
shipment printed, plays ten validation cases. The bar: every artefact is verified; only the
information-only quantisations may play worse than the checkpoint; the improvement is kept on
held-out cases; and the agent passes eight of its ten cases. With `--vllm`, which needs vLLM on
PATH, adapter and merged model also play on vLLM, and must play no worse there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
BOUND = ("adapter", "merged", "gguf f16", "gguf q8_0")
CASES, LEAST_PASSED = 10, 8
COLUMNS = ("file", "MB", "written in", "mean gap", "KL", "mean reward", "difference", "verdict")


def sparring(project: Path, *arguments: object) -> dict[str, Any]:
    """Run a command; return the JSON that it prints."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments), "--json"],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not done.stdout.strip():
        raise SystemExit(f"sparring {arguments[0]} failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    if "error" in found:
        raise SystemExit(f"sparring {arguments[0]} failed: {found['error']['message']}")
    return found


def train(project: Path) -> str:
    """Train SmolLM2 on the calculator and prove it; return the id of the run."""
    shutil.copy(ROOT / "examples" / "calculator" / "calculator.py", project)
    options = ["--lora", "--max-steps", 6, "--learning-rate", 5e-4, "--num-generations", 8]
    return str(sparring(project, "train", "calculator", *options)["run"])


def line(row: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one artefact."""
    played, gap = row.get("validation") or {}, row.get("gap") or {}
    difference = played.get("difference") or {}
    return {
        "name": row["name"],
        "mb": round(row["size"] / 1e6, 1),
        "written_seconds": row["written_seconds"],
        "prompts": row["prompts"]["conversations"],
        "mean_gap": gap.get("mean"),
        "largest_gap": gap.get("largest"),
        "kl": gap.get("kl"),
        "mean_reward": played.get("mean_reward"),
        "interval": [difference.get("low"), difference.get("high")],
        "same_answers": f"{played.get('same_answers')} of {played.get('rollouts')}",
        "likeness": played.get("likeness"),
        "played_seconds": played.get("seconds"),
        "server": row["server"],
        "servers": {
            name: {key: other.get(key) for key in ("mean_reward", "likeness", "seconds")}
            for name, other in row.get("servers", {}).items()
        },
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures as a Markdown table for the docs."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        low, high = row["interval"]
        interval = "–" if low is None else f"{low:+.2f} … {high:+.2f}"
        rate = "–" if row["mean_reward"] is None else f"{row['mean_reward']:.2f}"
        lines.append(
            f"| {row['name']} | {row['mb']:.0f} | {row['written_seconds']:.0f} s | "
            f"{row['mean_gap']:.1e} | {row['kl']:.1e} | {rate} | {interval} | {row['likeness']} |"
        )
    return "\n".join(lines)


def agent_passes(
    place: Path, summary: dict[str, Any], target: str, *, uses_vllm: bool
) -> dict[str, dict[str, int]]:
    """Return how many of ten validation cases the environment's agent passes on each server. The
    agent is configured by the printed lines, and runs its own tools without Sparring's player."""
    from sparring.shipping.llama_cpp import find_llama_cpp, served
    from sparring.shipping.other_servers import find_vllm, served_by_vllm

    gguf = next(place.glob("gguf/*q8_0.gguf"))
    with served(find_llama_cpp(), gguf, place.parent / "agent.log") as server:
        found = {"llama.cpp": _agent_on(server.base_url, summary, target)}
    if uses_vllm:
        arguments = shlex.split(summary["commands"]["vLLM"])[1:]
        log = place.parent / "vllm.log"
        with contextlib.chdir(place), served_by_vllm(find_vllm(), arguments, log) as address:
            found["vLLM"] = _agent_on(address, summary, target)
    return found


def _agent_on(address: str, summary: dict[str, Any], target: str) -> dict[str, int]:
    from agents import OpenAIChatCompletionsModel
    from openai import AsyncOpenAI

    from sparring.contracts.cases import Split
    from sparring.environments import load_environment
    from sparring.environments.examples import input_items

    environment = load_environment(target)
    shown = input_items(environment.examples)
    cases = list(environment.suite().cases(Split.VALIDATION, CASES))
    lines = summary["agent_lines"].replace("http://127.0.0.1:8080/v1", address)
    names: dict[str, Any] = {"agent": environment.agent(), "AsyncOpenAI": AsyncOpenAI}
    names["OpenAIChatCompletionsModel"] = OpenAIChatCompletionsModel
    exec(lines, names)
    return {"asked": len(cases), **asyncio.run(_play(names["agent"], shown, cases))}


async def _play(agent: Any, shown: list[Any], cases: list[Any]) -> dict[str, int]:
    from agents import RunConfig, Runner

    called = passed = 0
    for case in cases:
        config = RunConfig(tracing_disabled=True)
        question = {"role": "user", "content": case.input}
        result = await Runner.run(agent, [*shown, question], run_config=config, max_turns=4)
        has_call = any(each.type == "tool_call_item" for each in result.new_items)
        called += has_call
        passed += has_call and str(case.expected) in str(result.final_output)
    return {"called": called, "passed": passed}


def main() -> int:
    """Ship the model and print the figures; return 1 if they miss the bar."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--project", type=Path)
    parser.add_argument("--run", default="")
    parser.add_argument("--quants", default="q8_0,f16,q4_k_m")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--vllm", action="store_true")
    parser.add_argument("--keep", type=Path, help="copy the shipped folder here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        project = given.project or Path(scratch)
        run = given.run or train(project)
        place = Path(scratch) / "shipped"
        options: list[object] = ["--to", place, "--quant", given.quants]
        options += ["--vllm"] if given.vllm else []
        if given.quick:
            options += ["--validation-cases", 8, "--cases", 16]
        summary = sparring(project, "ship", run, *options)
        spec = json.loads((project / "runs" / run / "spec.json").read_text())
        agents = {}
        if summary["to"]:
            agents = agent_passes(place, summary, spec["target"], uses_vllm=given.vllm)
        if given.keep:
            shutil.copytree(place, given.keep)
    rows = [line(row) for row in summary["artefacts"]]
    for row in rows:
        print(json.dumps(row))
    print(table(rows))
    held_out = summary["held_out"] or {}
    is_met = summary["verdict"] != "refused" and bool(summary["is_fine"])
    is_met &= all(row["likeness"] != "worse" for row in rows if row["name"] in BOUND)
    others = [other["likeness"] for row in rows for other in row["servers"].values()]
    is_met &= "worse" not in others and len(others) == (2 if given.vllm else 0)
    is_met &= bool(agents) and all(each["passed"] >= LEAST_PASSED for each in agents.values())
    result = {
        "benchmark": "ship",
        "verdict": summary["verdict"],
        "problem": summary["problem"],
        "learned_kl": next((row.get("learned") for row in summary["artefacts"]), None),
        "artefacts": rows,
        "held_out": {
            name: held_out.get(name)
            for name in ("artefact", "likeness", "is_improved", "against_base", "parse_rate")
        },
        "agents": agents,
        "seconds": summary["seconds"],
        "is_met": is_met,
    }
    print(json.dumps(result))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
