"""The Python entry points `train()`, `evaluate()` and `prove()`, and the results they return."""
