"""The folder of a user's plans, and what it holds of each."""
