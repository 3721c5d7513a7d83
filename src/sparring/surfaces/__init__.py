"""Turning operations into a command line, tools and routes. No logic lives here."""
