"""What is shipped, and what is refused."""
