"""The inspector: a stored session as one HTML page, written to a file or served on loopback
while the session runs.
"""
