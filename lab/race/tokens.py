"""Tokens as the race's provider counts them: a tokenizer of its own, unrelated to longrein's
estimates.
"""

import re

_PIECES = re.compile(r"[A-Za-z]+|\d{1,3}|[\r\n]+|[ \t]+|[^\sA-Za-z\d]{1,2}|\S")
LETTERS = 6
"""Letters of a word that one token holds."""
MESSAGE_OVERHEAD = 4
"""Tokens that frame a message."""


def count_tokens(text: str) -> int:
    """Count tokens: words in pieces, three digits, one run of white space; a single space
    belongs to its word.
    """
    count = 0
    for piece in _PIECES.findall(text):
        first = piece[0]
        if first.isascii() and first.isalpha():
            count += -(-len(piece) // LETTERS)
        elif piece != " ":
            count += 1 if len(piece) < 16 else len(piece) // 16
    return count
