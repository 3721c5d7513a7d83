"""Renders results as reports in HTML and Markdown, with pictures."""
