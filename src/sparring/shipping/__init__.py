"""Writes the artefacts and cards of a trained model, and verifies them against the checkpoint."""
