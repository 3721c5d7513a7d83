"""The activity log: every call that changed something, and every refusal."""
