"""Ways to meet a session: `headless` and `terminal`, blind to each other; the command line's flags beside them."""
