"""What is typed, as values and records."""
