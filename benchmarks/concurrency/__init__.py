"""Measures of what works beside the conversation."""
