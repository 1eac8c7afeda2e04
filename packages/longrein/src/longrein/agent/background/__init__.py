"""Background tasks: start, output, stall detection and the notice of the end."""
