"""What is handed over, and what is refused."""
