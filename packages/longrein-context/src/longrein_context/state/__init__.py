"""State of a session: the result of the fold, and the data in it."""
