"""Planning a run: what it would be, cost and miss, kept with all that it rests on."""
