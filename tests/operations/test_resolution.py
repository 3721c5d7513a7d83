"""What a run is started from: names, layers, locks and budgets, for owners and operators."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sparring.contracts.errors import (
    EnvironmentNotFound,
    LockedConfig,
    LockedField,
    NotPermitted,
    OverBudget,
    SettingError,
    SparringError,
)
from sparring.contracts.kinds import KINDS, AuditSpec, CheckSpec
from sparring.contracts.specs import COMMAND, EvalSpec, PlaySettings, PolicySpec, RunSpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.environments import (
    ConfigQuery,
    EnvironmentQuery,
    NewEnvironment,
    new_environment,
    show_config,
    show_environment,
)
from sparring.operations.evaluating import StartEval, start_eval
from sparring.operations.operation import Caller, Role
from sparring.operations.resolution import (
    _refuse_paths_outside,
    all_settings,
    refuse_over_budget,
    request_of,
    resolve_run,
    revalidate,
    settings_of,
)
from sparring.operations.run_control import ResumeRun, resume_run
from sparring.operations.training import StartTrain, start_train
from sparring.projects import find_project
from sparring.run_folder import RunFolder
from sparring.settings.layers import Resolved, Setting
from sparring.settings.project_file import Budget, ProjectFile
from tests.operations.made import edit_project, make_project, operator_of

ENVIRONMENT = """
from pathlib import Path
from sparring import Environment
class Shop(Environment):
    settings = {"max_completion_length": 77, "max_steps": 5}
    class Config(Environment.Config):
        folder: Path = Path("stock")
        size: int = 2
"""
FILE = """
[settings]
temperature = 0.6
[[lock]]
field = "beta"
value = 0.5
author = "Kim"
[operators]
may_set = ["learning_rate"]
[budget]
steps = 50
rollouts = 3000
[environment.shop.config]
folder = "papers"
"""


@pytest.fixture
def owner(tmp_path) -> Caller:
    (tmp_path / "shop.py").write_text(ENVIRONMENT)
    (tmp_path / "sparring.toml").write_text(FILE)
    return Caller(Role.OWNER, tmp_path / "runs", folder=tmp_path)


@pytest.fixture
def operator(owner) -> Caller:
    return Caller(Role.OPERATOR, owner.runs, "agent", owner.folder)


def test_layers_go_over_each_other_and_say_where_they_are_from(owner):
    run_settings = resolve_run("shop", "train", {"temperature": 0.9}, owner)
    assert run_settings.checked.play.temperature == 0.9
    assert run_settings.checked.play.max_completion_length == 77
    assert run_settings.checked.play.beta == 0.5
    assert run_settings.resolved.sources()["temperature"] == "the command"
    assert run_settings.resolved.sources()["max_completion_length"] == "Shop in shop.py"
    assert run_settings.resolved.sources()["beta"] == "sparring.toml:5"


def test_paths_are_meant_from_where_they_are_written(owner, monkeypatch, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run_settings = resolve_run("shop", "train", {}, owner)
    assert run_settings.checked.config["folder"] == str(owner.folder / "papers")
    run_settings = resolve_run("shop", "train", {"config": {"folder": "mine"}}, owner)
    assert run_settings.checked.config["folder"] == str(elsewhere / "mine")


def test_a_path_in_a_lock_and_the_same_path_in_a_command_are_equal(owner, monkeypatch):
    lock = '[[lock]]\nfield = "config.folder"\nvalue = "papers"\n'
    (owner.folder / "sparring.toml").write_text(lock)
    monkeypatch.chdir(owner.folder.parent)
    place = f"{owner.folder.name}/papers"
    kept = resolve_run("shop", "train", {"config": {"folder": place}}, owner)
    assert kept.checked.config["folder"] == str(owner.folder / "papers")
    with pytest.raises(LockedField, match=r"config\.folder is locked to"):
        resolve_run("shop", "train", {"config": {"folder": "papers"}}, owner)


def test_a_refusal_does_not_tell_an_operator_what_is_outside_of_the_project(
    operator, monkeypatch, tmp_path_factory
):
    monkeypatch.chdir(operator.folder)
    outside = tmp_path_factory.mktemp("other")
    run = RunFolder(outside / "secret-20260101-beef")
    run.create({"kind": "train"})
    for name, value in (("model", f"{outside}/beef"), ("warm_start", f"{outside}/no-such-file")):
        with pytest.raises(LockedField, match=value):
            resolve_run("shop", "train", {name: value}, operator)
    with pytest.raises(LockedField) as refused:
        resolve_run("shop", "train", {"warm_start": "../other/file"}, operator)
    assert str(operator.folder) not in str(refused.value)


def test_an_operator_may_repeat_a_path_of_the_defaults(operator, monkeypatch):
    monkeypatch.chdir(operator.folder)
    edited = operator.folder / "sparring.toml"
    edited.write_text(edited.read_text().replace('folder = "papers"', "size = 3"))
    found = resolve_run("shop", "train", {"config": {"folder": "stock"}}, operator)
    assert found.checked.config["folder"] == "stock"


def test_a_warm_start_is_named_in_full_in_every_spec(owner):
    teacher = "shop-20260101-120000-8542"
    spec = TrainSpec(target="shop.py:Shop", environment="shop")
    RunFolder(owner.runs / teacher).create(spec.model_dump(mode="json"))
    project = (owner.folder / "sparring.toml").read_text()
    project = project.replace("[settings]", f'[settings]\nwarm_start = "{teacher[-4:]}"')
    (owner.folder / "sparring.toml").write_text(project)
    run_settings = resolve_run("shop", "train", {}, owner)
    assert run_settings.training.warm_start.source == teacher
    assert run_settings.spec(CheckSpec).settings.warm_start.source == teacher
    for elsewhere in (f"papers/{teacher}", "x" * 300):
        command = {"warm_start": {"source": elsewhere}}
        kept = resolve_run("shop", "train", command, owner).training.warm_start.source
        assert kept == elsewhere


def test_resolved_settings_cannot_be_changed(owner):
    run_settings = resolve_run("shop", "train", {}, owner)
    with pytest.raises(ValidationError, match="frozen"):
        run_settings.training.temperature = 0.1
    with pytest.raises(FrozenInstanceError):
        run_settings.checked.play = None


def test_a_lock_in_the_file_binds_the_owner_too(owner):
    with pytest.raises(LockedField, match=r"beta is locked to 0\.5 by Kim in sparring\.toml:5"):
        resolve_run("shop", "train", {"beta": 0.1}, owner)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "evil/model"}, {"max_steps": 6}, {"max_completion_length": 9999},
        {"lora": {"r": 512}}, {"lora": True}, {"lora": {"rank_pattern": {"q": 512}}},
        {"config": {"folder": "/root/.ssh"}}, {"processes": 8}, {"tool_timeout": 999},
        {"save_steps": 1}, {"engine": {"num_iterations": 9}}, {"unsandboxed": True},
        {"warm_start": {"source": "/etc/passwd"}},
    ],
)  # fmt: skip
def test_an_operator_is_held_to_the_projects_values(operator, settings):
    with pytest.raises(LockedField, match="the locks that bind operators by default"):
        resolve_run("shop", "train", settings, operator)


def test_an_operator_may_set_what_is_free_and_what_the_project_leaves_to_them(operator):
    run_settings = resolve_run(
        "shop", "train", {"learning_rate": 1e-3, "temperature": 0.5}, operator
    )
    assert run_settings.checked.play.learning_rate == 1e-3


def test_an_operator_names_environments_not_files_and_no_servers(operator):
    evil = operator.folder.parent / "evil.py"
    evil.write_text(f"open({str(evil.with_suffix('.ran'))!r}, 'w')\n")
    for target in (str(evil), f"{evil}:E", "../evil.py:E"):
        with pytest.raises(EnvironmentNotFound):
            start_train(StartTrain(environment=target), operator)
        with pytest.raises(EnvironmentNotFound):
            show_environment(EnvironmentQuery(environment=target), operator)
    assert not evil.with_suffix(".ran").exists()
    servers = {"kind": "endpoint", "model": "m", "endpoints": []}
    with pytest.raises(NotPermitted, match="only the owner may choose servers"):
        start_eval(StartEval.model_validate({"environment": "shop", "servers": servers}), operator)
    with pytest.raises(NotPermitted, match="held-out"):
        start_eval(StartEval.model_validate({"environment": "shop", "split": "held-out"}), operator)


def test_a_wrong_name_or_field_makes_no_run(owner):
    with pytest.raises(EnvironmentNotFound, match="did you mean shop"):
        start_train(StartTrain(environment="shopp"), owner)
    with pytest.raises(SettingError, match=r"did you mean config\.size"):
        start_train(StartTrain(environment="shop", settings={"config": {"sice": 3}}), owner)
    assert not owner.runs.exists()


def test_shown_settings_name_their_lock_and_source(operator):
    shown = {
        each.name: each for each in show_config(ConfigQuery(environment="shop"), operator).settings
    }
    assert shown["beta"].locked_by == "Kim, sparring.toml:5"
    assert shown["max_steps"].locked
    assert not shown["learning_rate"].locked
    assert shown["config.folder"].source == "sparring.toml:14"
    assert Path(shown["config.folder"].value).name == "papers"


def test_a_config_that_says_nothing_changes_nothing(owner):
    kept = resolve_run("shop", "train", {"config": {}}, owner).checked.config
    assert Path(kept["folder"]).name == "papers"
    with pytest.raises(SettingError, match="config must be a table"):
        resolve_run("shop", "train", {"config": False}, owner)


def test_an_environments_own_defaults_are_left_to_it(owner):
    """Kinds that cannot be written down would come back as something else."""
    (owner.folder / "odd.py").write_text(
        "from collections.abc import Callable\n"
        "from pydantic import Field, SecretStr\n"
        "from sparring import Environment\n"
        "class Odd(Environment):\n"
        "    class Config(Environment.Config):\n"
        "        size: int = None\n"
        "        key: SecretStr = SecretStr('abc')\n"
        "        named: int = Field(3, alias='other')\n"
        "        run: Callable[[], int] = len\n"
        "        word: str = Field('x', pattern=r'^\\p{L}+$')\n"
        "        rates: dict[str, float] = {'gpt-4.1': 0.5}\n"
    )
    budget = {"max_steps": 3}
    assert resolve_run("odd", "train", budget, owner).checked.config == {}
    given = {"rates": {"a.b": 1.0}, "word": "y"}
    assert resolve_run("odd", "train", {"config": given, **budget}, owner).checked.config == given


def test_a_run_on_held_out_cases_is_resumed_by_the_owner_only(operator):
    spec = EvalSpec(target="x.py:X", split="held-out")
    RunFolder(operator.runs / "secret").create(spec.model_dump(mode="json"))
    with pytest.raises(NotPermitted, match="held-out"):
        resume_run(ResumeRun(run="secret"), operator)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[environment.shoop.settings]\nbeta = 1\n", "there is no environment 'shoop'; did you mean shop"),
        ("[[lock]]\nfield = 'beta'\nenvironment = 'shoop'\n", "did you mean shop"),
        ("[[lock]]\nfield = 'guards.truncted.limit'\n", "there is no field guards.truncted.limit to lock"),
    ],
)  # fmt: skip
def test_settings_of_an_unknown_environment_or_field_are_refused(owner, text, message):
    (owner.folder / "sparring.toml").write_text(text)
    with pytest.raises(SparringError) as refused:
        resolve_run("shop", "train", {}, owner)
    assert message in str(refused.value)


def test_init_never_takes_the_place_of_a_projects_locks(owner):
    below = owner.folder / "below"
    below.mkdir()
    caller = Caller(Role.OWNER, below, folder=below)
    written = new_environment(NewEnvironment(name="fresh"), caller)
    assert [Path(file).name for file in written.files] == ["fresh.py", "test_fresh.py"]


def test_a_file_of_an_environments_name_does_not_hide_it(owner, monkeypatch):
    monkeypatch.chdir(owner.folder)
    (owner.folder / "shop").write_text("not Python")
    assert resolve_run("shop", "train", {}, owner).environment.found.class_name == "Shop"
    with pytest.raises(EnvironmentNotFound):
        resolve_run("x" * 400, "train", {}, owner)


@pytest.mark.parametrize(
    "value", ["/etc/passwd", ["a", "/etc/passwd"], {"a": {"b": "/etc/passwd"}}, [["../../x"]]]
)
def test_a_path_outside_of_the_project_is_refused_at_any_depth(tmp_path, value):
    def resolved(value):
        return Resolved({"config.files": Setting(value, COMMAND)})

    with pytest.raises(NotPermitted, match=r"config\.files: only the owner"):
        _refuse_paths_outside(resolved(value), tmp_path)
    _refuse_paths_outside(resolved({"a": ["./x", "y"]}), tmp_path)


TARGET = {"target": "shop.py:Shop", "environment": "shop"}


@pytest.fixture
def owner_of_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def file(owner_of_budgets: Caller) -> ProjectFile:
    return find_project(owner_of_budgets.folder).file


def training(**settings: object) -> TrainSpec:
    return TrainSpec(**TARGET, settings=TrainSettings.model_validate(settings))


def test_a_run_may_use_its_whole_budget_and_nothing_beyond(file: ProjectFile) -> None:
    spec = training(max_steps=50)
    most = spec.max_rollouts
    assert most is not None
    refuse_over_budget(spec, Budget(steps=50, rollouts=most), file)
    with pytest.raises(OverBudget, match="at most 49 steps per run; max_steps is 50"):
        refuse_over_budget(spec, Budget(steps=49), file)
    with pytest.raises(OverBudget, match=f"this one could play {most:,}; lower"):
        refuse_over_budget(spec, Budget(rollouts=most - 1), file)


@pytest.mark.parametrize("budget", [Budget(steps=50), Budget(rollouts=3000)])
def test_a_training_without_a_length_is_refused_by_any_budget(
    file: ProjectFile, budget: Budget
) -> None:
    with pytest.raises(OverBudget, match=r"sparring\.toml:\d+: .* set max_steps"):
        refuse_over_budget(training(max_steps=None), budget, file)


@pytest.mark.parametrize(
    "spec",
    [training(max_steps=None), training(max_steps=10**6), EvalSpec(**TARGET), AuditSpec(**TARGET)],
)
def test_without_steps_or_rollouts_in_the_budget_nothing_is_refused(
    file: ProjectFile, spec: RunSpec
) -> None:
    refuse_over_budget(spec, Budget(hours=0.1, runs_at_once=1), file)
    with pytest.raises(OverBudget):  # the same length, where there is a limit
        refuse_over_budget(training(max_steps=10**6), Budget(steps=1), file)


def test_a_check_counts_its_dry_steps(file: ProjectFile) -> None:
    spec = CheckSpec(**TARGET, dry_steps=3)
    with pytest.raises(OverBudget, match="at most 2 steps per run; dry_steps is 3"):
        refuse_over_budget(spec, Budget(steps=2), file)


def test_an_evaluation_counts_rollouts_and_no_steps(file: ProjectFile) -> None:
    spec = EvalSpec(**TARGET, cases=10, play=PlaySettings(num_generations=4))
    refuse_over_budget(spec, Budget(steps=1, rollouts=40), file)
    with pytest.raises(OverBudget, match="at most 39 rollouts per run; this one could play 40"):
        refuse_over_budget(spec, Budget(rollouts=39), file)


def test_budgets_are_enforced_before_a_run_is_made(owner_of_budgets: Caller) -> None:
    def start(**settings):
        start_train(StartTrain(environment="shop", settings=settings), owner_of_budgets)

    with pytest.raises(OverBudget, match=r"sparring\.toml:8: at most 50 steps per run"):
        start(max_steps=51)
    with pytest.raises(OverBudget, match=r"at most 3,000 rollouts per run.*could play.*lower max"):
        start(max_steps=50, num_generations=64)
    with pytest.raises(OverBudget, match="set max_steps"):
        start(max_steps=None)
    assert not owner_of_budgets.runs.exists()


def test_evaluations_have_a_budget_too(owner_of_budgets: Caller) -> None:
    with pytest.raises(OverBudget, match="so set cases"):
        start_eval(StartEval(environment="shop"), owner_of_budgets)
    many = {"num_generations": 3000}
    with pytest.raises(OverBudget, match="could play 30,000"):
        start_eval(StartEval(environment="shop", cases=10, settings=many), owner_of_budgets)


NAMES = ("train", "check", "prove", "eval", "audit")
LOCK = '[[lock]]\nfield = "temperature"\nvalue = 0.2\n[budget]'


@pytest.fixture
def owner_of_revalidation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator_of_revalidation(owner_of_revalidation: Caller) -> Caller:
    return operator_of(owner_of_revalidation)


def spec_of_kind(kind: str, caller: Caller, **command: Any) -> RunSpec:
    """The spec of a run that this caller starts now, with these settings in its command."""
    is_training = kind in ("train", "check")
    made = resolve_run("shop", "train" if is_training else "eval", command, caller)
    own = {"prove": {"run": "shop-1", "cases": 4}, "eval": {"cases": 4}}
    return made.spec(KINDS[kind].spec, **own.get(kind, {}))


def training_of_revalidation(**fields: Any) -> TrainSpec:
    settings = TrainSettings(max_steps=7, temperature=0.9, lora={"r": 4})
    return TrainSpec(target="shop.py:Shop", environment="shop", settings=settings, **fields)


def test_settings_have_dotted_names_and_those_of_the_command_are_known() -> None:
    sources = {"max_steps": "sparring.toml:3", "lora.r": "the command", "gone": "the command"}
    spec = training_of_revalidation(
        config={"size": 2}, policy=PolicySpec(model="tiny"), sources=sources
    )
    everything = all_settings(spec)
    assert (everything["lora.r"], everything["config.size"]) == (4, 2)
    assert (everything["model"], everything["processes"]) == ("tiny", 1)
    assert settings_of(spec) == {"max_steps": 7, "lora.r": 4}
    assert request_of(spec) == {"lora.r": 4}


def test_only_trainings_and_checks_have_processes_and_only_trainings_a_rendezvous() -> None:
    target = {"target": "shop.py:Shop", "environment": "shop"}
    names = [
        all_settings(spec).keys() & {"processes", "nodes", "rendezvous", "restarts"}
        for spec in (training_of_revalidation(), CheckSpec(**target), EvalSpec(**target))
    ]
    assert names == [
        {"processes", "nodes", "rendezvous", "restarts"},
        {"processes", "nodes", "restarts"},
        {"restarts"},
    ]


@pytest.mark.parametrize("kind", NAMES)
def test_a_run_that_could_be_started_like_this_now_is_accepted(
    operator_of_revalidation: Caller, kind: str
) -> None:
    revalidate(
        spec_of_kind(kind, operator_of_revalidation, temperature=0.9), operator_of_revalidation
    )


@pytest.mark.parametrize("kind", NAMES)
def test_a_value_that_has_been_locked_since_is_refused(
    operator_of_revalidation: Caller, kind: str
) -> None:
    spec = spec_of_kind(kind, operator_of_revalidation)
    edit_project(operator_of_revalidation, "[budget]", LOCK)
    with pytest.raises(LockedField) as refused:
        revalidate(spec, operator_of_revalidation)
    assert str(refused.value) == (
        "temperature is locked to 0.2 by sparring.toml:8, and this run was started with 0.8; "
        "plan a new run"
    )


@pytest.mark.parametrize("kind", NAMES)
def test_a_run_with_the_locked_value_is_accepted(
    operator_of_revalidation: Caller, kind: str
) -> None:
    spec = spec_of_kind(kind, operator_of_revalidation, temperature=0.2)
    edit_project(operator_of_revalidation, "[budget]", LOCK)
    revalidate(spec, operator_of_revalidation)


@pytest.mark.parametrize("kind", NAMES)
def test_a_run_with_a_value_only_the_owner_may_set_is_refused_to_operators(
    owner_of_revalidation: Caller, operator_of_revalidation: Caller, kind: str
) -> None:
    spec = spec_of_kind(kind, owner_of_revalidation, unsandboxed=True)
    with pytest.raises(LockedField, match="unsandboxed"):
        revalidate(spec, operator_of_revalidation)
    revalidate(spec, owner_of_revalidation)


def test_a_proof_is_held_to_the_locks_on_how_it_plays_only(
    owner_of_revalidation: Caller, operator_of_revalidation: Caller
) -> None:
    owners = {"restarts": 9}
    for kind in ("train", "eval"):
        with pytest.raises(LockedField, match="restarts"):
            revalidate(
                spec_of_kind(kind, owner_of_revalidation, **owners), operator_of_revalidation
            )
    proof = spec_of_kind("prove", owner_of_revalidation, **owners)
    proof = proof.model_copy(update={"sources": {}})  # its command set nothing
    revalidate(proof, operator_of_revalidation)


def test_a_field_that_operators_may_no_longer_set_is_refused(
    operator_of_revalidation: Caller,
) -> None:
    spec = spec_of_kind("train", operator_of_revalidation, max_steps=9)
    revalidate(spec, operator_of_revalidation)
    edit_project(operator_of_revalidation, '"max_steps", ', "")
    with pytest.raises(LockedField, match=r"max_steps is locked to 5 .* you asked for 9"):
        revalidate(spec, operator_of_revalidation)


def test_a_field_that_was_set_to_nothing_is_compared_with_its_value_today(
    operator_of_revalidation: Caller,
) -> None:
    edit_project(operator_of_revalidation, '"max_steps"', '"max_steps", "validation_cases"')
    edit_project(
        operator_of_revalidation,
        "[budget]",
        "[environment.shop.settings]\nvalidation_cases = 4\n[budget]",
    )
    spec = spec_of_kind("train", operator_of_revalidation, validation_cases=None)
    revalidate(spec, operator_of_revalidation)
    edit_project(operator_of_revalidation, ', "validation_cases"', "")
    with pytest.raises(LockedField, match="validation_cases"):
        revalidate(spec, operator_of_revalidation)


def test_a_locked_field_of_the_config_that_the_run_does_not_have_is_refused(
    operator_of_revalidation: Caller,
) -> None:
    spec = spec_of_kind("train", operator_of_revalidation, config={"size": 3})
    edit_project(
        operator_of_revalidation,
        "[budget]",
        '[environment.shop.config]\nstock = "more.txt"\n[budget]',
    )
    with pytest.raises(LockedField, match=r"config\.stock .* was started with nothing"):
        revalidate(spec, operator_of_revalidation)


def test_a_locked_table_is_not_replaced_by_a_plain_value(
    owner_of_revalidation: Caller, operator_of_revalidation: Caller
) -> None:
    edit_project(
        owner_of_revalidation, "[budget]", "[environment.shop.settings]\nlora.r = 8\n[budget]"
    )
    spec = spec_of_kind("train", operator_of_revalidation)
    revalidate(spec, operator_of_revalidation)
    settings = spec.settings.model_copy(update={"lora": False})  # type: ignore[attr-defined]
    with pytest.raises(LockedField, match=r"lora.* is locked .* this run was started with"):
        revalidate(spec.model_copy(update={"settings": settings}), operator_of_revalidation)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("train", "steps = 50", "steps = 4"),
        ("train", "rollouts = 3000", "rollouts = 10"),
        ("check", "rollouts = 3000", "rollouts = 10"),
        ("eval", "rollouts = 3000", "rollouts = 3"),
        ("prove", "rollouts = 3000", "rollouts = 31"),
    ],
)
def test_a_run_beyond_the_budget_of_today_is_refused_to_everybody(
    owner_of_revalidation: Caller, operator_of_revalidation: Caller, kind: str, old: str, new: str
) -> None:
    spec = spec_of_kind(kind, operator_of_revalidation)
    edit_project(owner_of_revalidation, old, new)
    for caller in (owner_of_revalidation, operator_of_revalidation):
        with pytest.raises(OverBudget, match=r"^sparring\.toml:\d+: at most"):
            revalidate(spec, caller)


def test_an_operators_config_is_refused_as_config(
    owner_of_revalidation: Caller, operator_of_revalidation: Caller
) -> None:
    spec = spec_of_kind("train", owner_of_revalidation, config={"stock": "other.txt"})
    with pytest.raises(LockedConfig, match=r"config\.stock is locked"):
        revalidate(spec, operator_of_revalidation)
