"""What a provider charges for each class of text, learned from what it counted: a small Kalman filter, folded.

Each answered request tells how many tokens a known mix of classes cost. The factors start at 1 and move no further
than the evidence: a tokenizer that is dear with English is expected to be dear with everything, and what a session has
never held keeps its guess. A count that cannot be true moves nothing.
"""

import msgspec

from longrein.context.mix import Mix

SHARED_VARIANCE = 0.04
"""How far tokenizers differ as a whole (standard deviation 20 %) …"""
OWN_VARIANCES = (0.01, 0.04, 0.06, 0.25, 0.25, 0.09, 0.09, 0.09, 0.12, 0.12, 0.12, 0.12)
"""… and in each class of `mix.CLASSES` beside that: words the least, pictures and brackets the most."""
NOISE_SHARE = 0.03
NOISE_TOKENS = 4.0
"""How far a count may be from the sum of its classes."""
DRIFT = 0.0004
"""Variance that comes back with each count: what a class holds changes as a session goes."""
FACTOR_MIN = 0.25
FACTOR_MAX = 4.0
"""No tokenizer is further from the guess; a count that says so is wrong."""

Row = tuple[float, ...]
_N = len(OWN_VARIANCES)


def _prior() -> tuple[Row, ...]:
    return tuple(
        tuple(SHARED_VARIANCE + (OWN_VARIANCES[at] if at == row else 0.0) for at in range(_N)) for row in range(_N)
    )


class Learned(msgspec.Struct, frozen=True):
    """The factors and how sure they are. A new one for each count, so that it can be shared."""

    factors: Row = (1.0,) * _N
    """Tokens that the provider counts for each guessed one, by class of `mix.CLASSES`."""
    doubt: tuple[Row, ...] = _prior()
    """Their covariance."""
    counts: int = 0
    """Counts they were learned from."""

    def tokens(self, mix: Mix) -> float:
        """What `mix` costs."""
        return sum([factor * tokens for factor, tokens in zip(self.factors, mix, strict=True)])


def learn(known: Learned, mix: Mix, counted: float) -> Learned:
    """`known` after the provider counted `counted` tokens for `mix`; both may be differences of two requests."""
    held = [(at, tokens) for at, tokens in enumerate(mix) if tokens]
    drifted = [list(cells) for cells in known.doubt]
    for row, cells in enumerate(drifted):
        cells[row] += DRIFT
    toward = [sum([cells[at] * tokens for at, tokens in held]) for cells in drifted]
    noise = (NOISE_SHARE * sum(map(abs, mix)) + NOISE_TOKENS) ** 2
    spread = sum([tokens * pull for tokens, pull in zip(mix, toward, strict=True)]) + noise
    missed = counted - known.tokens(mix)
    factors = tuple(
        min(FACTOR_MAX, max(FACTOR_MIN, factor + pull * missed / spread))
        for factor, pull in zip(known.factors, toward, strict=True)
    )
    doubt = tuple(
        tuple([cell - pull * other / spread for cell, other in zip(cells, toward, strict=True)])
        for pull, cells in zip(toward, drifted, strict=True)
    )
    return Learned(factors, doubt, known.counts + 1)
