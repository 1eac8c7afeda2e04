"""Measurements, replays and campaigns of longrein. Not published: run from the root
of the repository, `python -m lab.NAME`; README.md lists them.
"""
