"""Greet somebody."""

print("Hello!")
