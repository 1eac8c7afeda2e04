"""Formats that others wrote: the same files, tables and lines are given to their code and to
longrein's.

Each module is named after the row of the formats page in docs/coming-from.md. `make clients`
installs the code of others; without it these tests are skipped.
"""
