"""`python -m sparring`: the command line, by a Python that one has picked."""

from sparring.surfaces.cli.main import run

run()
