"""Types of `longrein_context`, by its name in longrein."""

from longrein_context import *
