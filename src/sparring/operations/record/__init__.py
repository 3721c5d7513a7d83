"""The record of who did what: written around every call, and read back."""
