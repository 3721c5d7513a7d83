"""Runs commands written by a hostile model, contained, over a private workspace.

A leaf: it imports only the standard library and the error tree, so both planes can use it to
find out what this machine supports. It owns everything that a sandbox leaves on the machine,
and removes it.
"""

from sparring.sandbox.limits import SandboxLimits
from sparring.sandbox.sandbox import Finished, Sandbox
from sparring.sandbox.support import Support, probe

__all__ = ["Finished", "Sandbox", "SandboxLimits", "Support", "probe"]
