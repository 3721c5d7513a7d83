"""Runs commands that a hostile model wrote in a sandbox with a private workspace.

A leaf: it imports only the standard library and the error tree, so both planes can use it. It
ends all processes, and removes all files and control groups, that its sandboxes create.
"""

from sparring.sandbox.command import SandboxLimits
from sparring.sandbox.sandbox import Finished, Sandbox
from sparring.sandbox.support import Support, probe

__all__ = ["Finished", "Sandbox", "SandboxLimits", "Support", "probe"]
