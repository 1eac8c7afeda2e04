"""The package that the engine is made of, `longrein_context`, by its name in longrein."""

from longrein_context import __getattr__ as __getattr__
