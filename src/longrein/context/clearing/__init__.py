"""What a line is worth, what of an item is therefore shown, and when it pays to show less. Knows nothing of the log."""
