"""The errors that Sparring raises on purpose. A message states what failed, where, and the next
step.

* SparringError
  * InvalidInput
    * SuiteError
      * CasesBroken
      * SplitTooSmall
    * MeasureError
    * Untrainable
    * UnknownModel
    * UnknownFamily
    * UnknownArchitecture
      * UnknownTokenizer
    * SettingError
      * ConfigError
      * LockedField
        * LockedConfig
      * NotEnoughMemory
      * OverBudget
    * EnvironmentNotFound
    * EnvironmentBroken
  * CheckpointError
  * FaultyArtefact
  * ParityError
  * WorldSizeError
  * MissingPackage
  * SandboxUnavailable
  * ServiceFailed
  * NotEnoughSpace
  * InfrastructureError
    * EndpointError
  * GuardStop
  * RunNotFound
    * AmbiguousRun
  * NotFinished
  * IllegalMove
  * LauncherFailed
  * RunChanged
  * NewerFormat
  * NotProved
  * NotBetter
  * RunFailed
  * PlanRefused
  * ActivityLogBusy
  * NotPermitted
"""

from sparring.contracts.errors import *  # noqa: F403 - the tree, and nothing else
