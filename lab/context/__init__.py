"""Measures of the context engine: each module is a program (`python -m lab.context.fuzz`)
and part of a table.

They use public parts: `longrein.testing`, `longrein.context`, and a real session on a real disk
where needed. They are independent of the policy.
"""
