"""Composing one run from its folder, in a process of its own. Touches no index, no surface."""
