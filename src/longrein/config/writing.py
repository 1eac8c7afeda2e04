"""Writing the user's own small files: whole or not at all."""

import os


def replace_file(path: str, data: bytes) -> None:
    """Put `data` in place of the file that `path` leads to (links followed), keeping its mode; 0600 for a new one.

    A reader, or a crash, sees the old content or the new. Raises OSError.
    """
    path = os.path.realpath(path)
    try:
        mode = os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        mode = 0o600
    temporary = f"{path}.{os.getpid()}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
