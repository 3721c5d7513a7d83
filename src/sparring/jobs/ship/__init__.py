"""Runs of kind ship: write a trained model as artefacts, verify them, and publish the folder."""
