"""The clearing policy: value lines of old items and decide when shortening them pays.
Independent of the log.
"""
