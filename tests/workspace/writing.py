"""Replace a file in tests, as tools do."""

import errno

from longrein.workspace.atomic_write import replace
from longrein.workspace.files import stamp


def write(path: str, data: bytes, *, expect: str | None = None) -> None:
    """Replace content `expect` (its hash), or whatever stands there. Raises `FileExistsError` for
    another content, and other OSErrors.
    """
    try:
        replaced = replace(path, data, expect=stamp(path).hash if expect is None else expect)
    except FileNotFoundError:
        raise FileExistsError(errno.EEXIST, "was removed by somebody else", path) from None
    if replaced.data is None:
        raise FileExistsError(errno.EEXIST, "was changed by somebody else", path)
