"""Turns results into reports: HTML, Markdown and pictures."""
