"""The state that the fold keeps, and the data in it."""
