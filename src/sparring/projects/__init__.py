"""Finds a project, its environments and their descriptions.

Part of the control plane: it reads user code as source and runs it only in a separate process.
"""

from sparring.projects.project import Project, find_project

__all__ = ["Project", "find_project"]
