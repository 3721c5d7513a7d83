"""`python -m sparring`: the command line, run by the chosen Python interpreter."""

from sparring.surfaces.cli.main import run

run()
