"""The error tree. A message states what failed, where, and the next step."""

from __future__ import annotations


class SparringError(Exception):
    """Base class of the errors that Sparring raises on purpose."""

    exit_code = 2
    is_foreign = False  # whether the message quotes text that Sparring did not write

    @property
    def name(self) -> str:
        """The type of the error in JSON output and in histories."""
        return str(getattr(self, "kind", type(self).__name__))


def error_text(error: BaseException) -> str:
    """Return the message of an error, which names the error's type unless Sparring raised it."""
    return str(error) if isinstance(error, SparringError) else f"{type(error).__name__}: {error}"


class InvalidInput(SparringError):
    """An argument, file or field is invalid."""


class SuiteError(InvalidInput):
    """Cases cannot be read, identified or split."""


class CasesBroken(SuiteError):
    """A run could not read its cases. The first line of the message quotes no case; the rest may,
    and is shown to the owner only."""


class SplitTooSmall(SuiteError):
    """A split has too few cases for a meaningful result."""


class MeasureError(InvalidInput):
    """A measure is declared, named or weighted wrongly."""


class Untrainable(InvalidInput):
    """The agent uses a feature that Sparring cannot train."""


class UnknownModel(InvalidInput):
    """No model has this name, or the folder holds no model."""


class UnknownFamily(InvalidInput):
    """No family declares this model's chat format, or the family lacks a required feature."""


class UnknownArchitecture(InvalidInput):
    """A model's architecture cannot be converted to the requested form."""


class UnknownTokenizer(UnknownArchitecture):
    """A tokenizer cannot be converted to the requested form."""


class SettingError(InvalidInput):
    """A setting does not exist, may not be changed, or would have no effect."""


class CheckpointError(SparringError):
    """A checkpoint is damaged, or cannot be saved at this step."""


class FaultyArtefact(SparringError):
    """A converted model differs from its checkpoint."""

    exit_code = 110


class ParityError(SparringError):
    """Sampler and trainer compute different log-probabilities for the same tokens."""


class WorldSizeError(SparringError):
    """The number of running processes differs from the number requested."""


class MissingPackage(SparringError):
    """An optional package is not installed."""


class SandboxUnavailable(SparringError):
    """This machine cannot sandbox code that a model wrote."""


class ServiceFailed(SparringError):
    """A service of the environment did not start, or stopped."""

    exit_code = 100


class ConfigError(SettingError):
    """A field of an environment's config is invalid; the message quotes the environment."""

    is_foreign = True


class LockedField(SettingError):
    """The request changes a locked setting."""


class LockedConfig(LockedField):
    """A field of an environment's config is locked; the message quotes its value."""

    is_foreign = True


class NotEnoughMemory(SettingError):
    """Not even one row of a training run fits into memory."""


class NotEnoughSpace(SparringError):
    """A disk has too little free space for the files to be written."""

    exit_code = 100


class OverBudget(SettingError):
    """The request exceeds the project's budget."""


class EnvironmentNotFound(InvalidInput):
    """No environment has this name."""


class EnvironmentBroken(InvalidInput):
    """An environment could not be loaded; the message quotes its error."""

    is_foreign = True


class InfrastructureError(SparringError):
    """A failure that the model did not cause. A rollout that ends with it is never scored."""

    exit_code = 100


class EndpointError(InfrastructureError):
    """A model's server cannot be reached, or its answer is no completion; the message quotes it.
    `may_pass` if the server was busy or broken."""

    def __init__(self, message: str = "", *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class GuardStop(SparringError):
    """The guard named `guard` stopped a training run that could not improve."""

    exit_code = 100

    def __init__(self, message: str = "", guard: str = "") -> None:
        super().__init__(message)
        self.guard = guard


class RunNotFound(SparringError):
    """No run has this name."""

    exit_code = 102


class AmbiguousRun(RunNotFound):
    """Several runs match this name."""


class NotFinished(SparringError):
    """The run has not ended yet."""

    exit_code = 101


class IllegalMove(SparringError):
    """The state of the run does not allow the request."""


class LauncherFailed(SparringError):
    """The launcher could not start the run, or its scheduler did not answer."""

    exit_code = 100


class RunChanged(SparringError):
    """The cases, the code or the processes of a run differ from those it started with."""


class NewerFormat(SparringError):
    """A newer version of Sparring wrote this file."""


class NotProved(SparringError):
    """No proof shows that the checkpoint to ship is better than the base model."""

    exit_code = 110


class NotBetter(SparringError):
    """The verdict of a check, audit, proof or shipment is bad. Only the exit code is used."""

    exit_code = 110


class RunFailed(SparringError):
    """A run ended without a result; `kind` names the error that ended it."""

    def __init__(self, message: str, kind: str = "RunFailed", exit_code: int = 100) -> None:
        super().__init__(message)
        self.kind = kind
        self.exit_code = exit_code


class PlanRefused(SparringError):
    """A plan cannot start: it is unknown, used, refused, or no longer matches the project."""


class ActivityLogBusy(SparringError):
    """The activity log cannot be written, so the call is refused."""


class NotPermitted(SparringError):
    """The caller's role does not permit this operation."""
