"""The sandbox: commands that a hostile model wrote, over a private workspace.

A leaf: standard library and the error tree only, so that both planes can ask it what this
machine can do. It owns everything that a sandbox leaves on the machine, and takes it away.
"""

from sparring.sandbox.limits import SandboxLimits
from sparring.sandbox.sandbox import Finished, Sandbox
from sparring.sandbox.support import Support, probe

__all__ = ["Finished", "Sandbox", "SandboxLimits", "Support", "probe"]
