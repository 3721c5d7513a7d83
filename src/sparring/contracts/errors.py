"""The one error tree. A message says what is wrong, where, and the next move."""

from __future__ import annotations


class SparringError(Exception):
    """Everything Sparring raises on purpose."""

    exit_code = 2
    is_foreign = False  # whether the message is in words of somebody else's

    @property
    def name(self) -> str:
        """What programs know it by."""
        return str(getattr(self, "kind", type(self).__name__))


class InvalidInput(SparringError):
    """An argument, a file or a field that cannot be used as given."""


class SuiteError(InvalidInput):
    """Cases that cannot be read, told apart or split."""


class CasesBroken(SuiteError):
    """Cases that a run could not read. The first line of its message quotes nothing of them; what
    follows may, and is for the owner."""


class SplitTooSmall(SuiteError):
    """A split with too few cases to say anything."""


class MeasureError(InvalidInput):
    """A measure that is declared, named or weighted wrongly."""


class Untrainable(InvalidInput):
    """Something in the agent that Sparring cannot play and learn from."""


class UnknownModel(InvalidInput):
    """A model name that leads to no model."""


class UnknownFamily(InvalidInput):
    """A model whose chat format nobody has declared."""


class SettingError(InvalidInput):
    """A setting that does not exist, is not yours to set, or would do nothing."""


class CheckpointError(SparringError):
    """A checkpoint that cannot be trusted, or must not be written here."""


class ParityError(SparringError):
    """Sampler and trainer disagree about the same tokens; learning from them would be wrong."""


class WorldSizeError(SparringError):
    """Another number of processes than was asked for."""


class MissingPackage(SparringError):
    """An optional package that this piece of work needs."""


class SandboxUnavailable(SparringError):
    """This machine cannot contain code that a model wrote."""


class ServiceFailed(SparringError):
    """A service of the environment that did not come up, or did not stay."""

    exit_code = 100


class ConfigError(SettingError):
    """A field of an environment's config; what it may be is said in the environment's words."""

    is_foreign = True


class LockedField(SettingError):
    """A setting that somebody has fixed."""


class LockedConfig(LockedField):
    """A field of an environment's config that is fixed, to a value that may be its own words."""

    is_foreign = True


class NotEnoughMemory(SettingError):
    """A training of which not even one row fits into memory."""


class OverBudget(SettingError):
    """More than the project allows."""


class EnvironmentNotFound(InvalidInput):
    """No environment of that name."""


class EnvironmentBroken(InvalidInput):
    """An environment that could not say what it is; it says why in its own words."""

    is_foreign = True


class MachineryFailure(SparringError):
    """Something broke that is not the model's doing; never scored as zero."""

    exit_code = 100


class GuardStop(SparringError):
    """A training that cannot get anywhere, by one of its guards."""

    exit_code = 100


class RunNotFound(SparringError):
    """No run folder of that name."""

    exit_code = 102


class NotFinished(SparringError):
    """A run that has not come to its end yet."""

    exit_code = 101


class IllegalMove(SparringError):
    """A run cannot go from the state it is in to the one that was asked for."""


class LauncherFailed(SparringError):
    """What was to start a run's processes did not."""

    exit_code = 100


class RunChanged(SparringError):
    """A run that would resume on other cases or other code than it started with."""


class NewerFormat(SparringError):
    """A file written by a newer Sparring."""


class NotBetter(SparringError):
    """A proof that shows no improvement."""

    exit_code = 110


class RunFailed(SparringError):
    """A run that ended without its result; `kind` names the error that ended it."""

    def __init__(self, message: str, kind: str = "RunFailed", exit_code: int = 100) -> None:
        super().__init__(message)
        self.kind = kind
        self.exit_code = exit_code


class PlanRefused(SparringError):
    """A plan that was started already, or that no longer says what would happen."""


class TrailBusy(SparringError):
    """The record of who did what cannot be written now, and nothing happens off the record."""


class NotPermitted(SparringError):
    """The caller's role does not allow this operation."""
