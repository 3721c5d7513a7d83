"""Plans: resolved requests for runs, stored with a digest, which can be started later."""
