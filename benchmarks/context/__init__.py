"""The measures of the context engine: each file is a program (`python -m benchmarks.context.fuzz`), all one table.

They use what everybody can use: `longrein.testing`, `longrein.context`, and a real session on a real disk where that
is the question. Nothing here knows which policy decides.
"""
