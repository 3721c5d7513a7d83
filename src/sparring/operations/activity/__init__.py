"""The activity log: all calls that change state, and operators' refused calls."""
