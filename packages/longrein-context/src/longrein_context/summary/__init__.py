"""Summaries: records kept by code with their proofs, audited prose of a model, and the user's
messages.
"""
