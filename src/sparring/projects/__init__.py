"""A project: its environments, found by reading source, and what each says of itself.

Belongs to the control plane: user code is read here, and run only in a process of its own.
"""

from sparring.projects.project import Project, find_project

__all__ = ["Project", "find_project"]
