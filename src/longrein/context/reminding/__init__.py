"""What the model is told of the world: a catalogue of kinds, what has happened, and what of it is due now."""
