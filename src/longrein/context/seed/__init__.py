"""The founding documents' way with a full window, literally: the baseline that the default is held against."""
