"""Measures of background work."""
