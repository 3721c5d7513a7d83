"""Statistics and reports: what a set of rollouts shows, with intervals. Changes no run."""
