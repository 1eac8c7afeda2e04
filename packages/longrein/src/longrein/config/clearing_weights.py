"""Weights of the clearing policy in a file, as `lab.fit` writes them."""

import math
import os
from collections.abc import Mapping

import msgspec

from longrein.config.user_environment import config_dir
from longrein_context.clearing.weights import TABLES
from longrein_context.events import UsageError

FORMAT = 1
"""Version of the file's format."""
BYTES_MAX = 4 << 20

Tables = Mapping[str, Mapping[str, tuple[float, ...]]]
"""Model (`line`, `word`) -> term -> weights."""


class Fold(msgspec.Struct, frozen=True):
    """Weights that were fitted without some sessions."""

    without: tuple[str, ...]
    """Names of these sessions."""
    tables: Tables


class Weights(msgspec.Struct, frozen=True):
    """Fitted weights."""

    tables: Tables
    folds: tuple[Fold, ...] = ()
    about: str = ""
    """Description of the sessions that the weights were fitted on, for display."""
    format: int = FORMAT

    def without(self, session: str) -> Tables:
        """Return weights that were not fitted on this session."""
        return next((fold.tables for fold in self.folds if session in fold.without), self.tables)


def read_weights(path: str) -> Weights:
    """Read a file of weights. Raises `UsageError` if it is none, or does not fit this version of
    longrein.
    """
    again = "write it again with lab.fit"
    try:
        with open(path, "rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"the weights {path} cannot be read: {error.strerror}") from error
    try:
        found = msgspec.json.decode(data, type=Weights)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no file of weights ({error}): {again}") from error
    for tables in (found.tables, *(fold.tables for fold in found.folds)):
        if found.format != FORMAT or _shape(tables) != _shape(TABLES):
            raise UsageError(f"the weights {path} are of another version of longrein: {again}")
        if not all(
            math.isfinite(w) for table in tables.values() for term in table.values() for w in term
        ):
            raise UsageError(f"{path} holds a weight that is no number: {again}")
    return found


def weights_in_use(
    path: str, environ: Mapping[str, str], home: str
) -> tuple[Tables, tuple[str, ...]]:
    """Return the tables that the setting `context.weights` names, and notes; the shipped ones
    without it.

    A relative path begins in the folder of the user's settings.
    """
    if not path:
        return TABLES, ()
    name = home + path[1:] if path.startswith("~/") else path
    try:
        return read_weights(os.path.join(config_dir(environ, home), name)).tables, ()
    except UsageError as error:
        return TABLES, (f"context.weights: {error}; until then the shipped weights are used",)


def _shape(tables: Tables) -> dict[str, dict[str, int]]:
    return {
        model: {term: len(weights) for term, weights in table.items()}
        for model, table in tables.items()
    }
