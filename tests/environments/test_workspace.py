"""Workspaces: the tools of an agent, and what measures find afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.environments.workspace import TOOLS, Workspace
from sparring.player.worlds import world_tools
from sparring.sandbox import SandboxLimits, probe


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    """Without a sandbox: these programs are ours."""
    made = Workspace({"in.txt": "3\n", "part/a.txt": "é"}, is_unsandboxed=True)
    yield made
    made.after_rollout()


def test_a_long_file_is_shown_with_a_note_that_it_is_cut() -> None:
    long = Workspace({"long.txt": "x" * 100_000}, is_unsandboxed=True)
    try:
        assert long.read_file("long.txt").endswith("x\n… (cut after 64,000 bytes)")
    finally:
        long.after_rollout()


@pytest.mark.skipif(not probe().works, reason=probe().why_not)
def test_a_workspace_has_five_tools_and_tells_a_measure_what_is_left() -> None:
    workspace = Workspace({"in.txt": "3\n"})
    assert workspace.read_file("in.txt") == "3\n"
    assert workspace.run_python("print(open('in.txt').read().strip() * 2)") == "33"
    assert workspace.write_file("out.txt", "hello") == "wrote out.txt"
    assert workspace.run_shell("cat out.txt; false") == "hello\n(exit code 1)"
    assert workspace.list_files() == "in.txt\nout.txt"
    assert workspace.read_file("nothing") == "there is no file nothing"
    assert "leads out" in workspace.read_file("../../etc/passwd")
    assert workspace.run_shell("true") == "(it printed nothing)"
    assert workspace.has("out.txt")
    assert not workspace.has("nothing")
    workspace.after_rollout()
    assert not workspace.sandbox.root.exists()


def test_a_tool_that_a_workspace_has_not_is_refused() -> None:
    with pytest.raises(InvalidInput, match="did you mean run_python"):
        Workspace(tools=("run_pyton",))
    with pytest.raises(InvalidInput, match="use run_python, run_shell, read_file"):
        Workspace(tools=("browse",))


def test_the_agent_gets_all_tools_or_those_that_were_chosen(workspace: Workspace) -> None:
    assert {tool.name for tool in world_tools(workspace)} == set(TOOLS)
    chosen = Workspace(tools=("read_file",), is_unsandboxed=True)
    assert [tool.name for tool in world_tools(chosen)] == ["read_file"]
    chosen.after_rollout()


def test_a_measure_reads_what_the_agent_wrote_in_place_of_what_was(workspace: Workspace) -> None:
    workspace.write_file("in.txt", "4")
    assert workspace.read("in.txt") == "4"
    assert "part/a.txt" in workspace.names()
    assert workspace.read("part/a.txt") == "é"
    with pytest.raises(FileNotFoundError):
        workspace.read("nothing")


@pytest.mark.parametrize(
    ("path", "reply"), [("nothing", "there is no file nothing"), ("part", "not a plain file")]
)
def test_a_file_that_cannot_be_read_is_answered_and_not_raised(
    workspace: Workspace, path: str, reply: str
) -> None:
    assert reply in workspace.read_file(path)
    assert not workspace.has(path)


def test_a_path_out_of_the_workspace_is_refused(workspace: Workspace) -> None:
    outside = workspace.sandbox.root.parent / "out.txt"
    for path in ("../out.txt", str(outside), "part/../../out.txt"):
        assert path in workspace.read_file(path)
        assert not workspace.write_file(path, "x").startswith("wrote")
        assert not workspace.has(path)
    assert not outside.exists()


def test_a_file_that_does_not_fit_is_not_written() -> None:
    small = Workspace(limits=SandboxLimits(file_bytes=10), is_unsandboxed=True)
    assert small.list_files() == "the workspace is empty"
    assert small.write_file("large.txt", "x" * 11).startswith("large.txt: no room")
    assert not small.has("large.txt")
    small.after_rollout()


def test_text_that_utf_8_cannot_write_is_replaced(workspace: Workspace) -> None:
    assert workspace.write_file("odd.txt", "a\ud800b") == "wrote odd.txt"
    assert workspace.read_file("odd.txt") == "a?b"


def test_long_output_is_cut_off_with_its_length(workspace: Workspace) -> None:
    reply = workspace.run_python("print('x' * 20_000)")
    assert reply.startswith("x" * 16_000 + "\n(cut off")
    assert "20,000 characters" in reply


def test_a_program_that_exceeds_its_limit_is_stopped_with_the_reason() -> None:
    quick = Workspace(limits=SandboxLimits(wall_seconds=0.2), is_unsandboxed=True)
    assert quick.run_shell("sleep 60") == "(stopped: over 0.2 s of time or 10 s of CPU)"
    quick.after_rollout()


def test_a_program_that_is_too_long_is_not_run(workspace: Workspace) -> None:
    program = "open('ran', 'w')\n" + "#" * 200_000
    assert "too long" in workspace.run_python(program)
    assert not workspace.has("ran")


def test_an_empty_program_prints_nothing(workspace: Workspace) -> None:
    assert workspace.run_python("") == "(it printed nothing)"


def test_an_exit_code_is_shown_with_and_without_output(workspace: Workspace) -> None:
    assert workspace.run_shell("exit 3") == "(exit code 3)"
    assert workspace.run_shell("echo no; exit 3") == "no\n(exit code 3)"
