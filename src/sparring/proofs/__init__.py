"""Statistics and verdicts: what a set of rollouts shows, with intervals. Pure functions."""
