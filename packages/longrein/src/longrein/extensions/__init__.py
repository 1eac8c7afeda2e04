"""Extensions: folders that longrein does not need to run, and that may be deleted.

Its `entry_points.txt` names its parts by the doors that installed packages have, too
(`longrein.extension_points`). Nothing outside of this package imports from it.
"""
