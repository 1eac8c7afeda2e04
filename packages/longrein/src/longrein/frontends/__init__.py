"""Frontends: `headless` and `terminal`, which do not import each other, and the command line's
flags.
"""
