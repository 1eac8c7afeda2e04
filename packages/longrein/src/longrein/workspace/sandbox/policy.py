"""Policy of a sandbox: paths that a command may see and change."""

import msgspec


class SandboxPolicy(msgspec.Struct, frozen=True):
    """Limits of all commands of a session. Paths are absolute and real (no symbolic links)."""

    roots: tuple[str, ...]
    """Folders that commands may change."""
    home: str = ""
    """Home folder; commands see it empty but for `home_visible` and the roots."""
    home_visible: tuple[str, ...] = ()
    """Files and folders below `home` that commands may read."""
    home_writable: tuple[str, ...] = ()
    """Folders below `home` that commands may change, such as caches of package managers."""
    links: tuple[tuple[str, str], ...] = ()
    """(link, real path), outer ones first: links of the user outside the roots, which commands
    find where they see an empty folder.
    """
    read_only: tuple[str, ...] = ()
    """Existing files and folders in the roots that commands may not change."""
    hidden: tuple[str, ...] = ()
    """Existing files and folders that commands may not read."""
    network: bool = False
    """True if commands reach the network without limits."""
    proxy_socket: str = ""
    """Unix socket of the proxy for allowed domains; '' for none."""
    private_tmp: str = ""
    """Folder that commands see as /tmp; '' for a new empty one for each command."""
    private_home: str = ""
    """Folder that commands see as `home`; '' for a new empty one for each command."""
    image: str = ""
    """Folder that commands see, and may change, in place of this machine's files; '' for none. Of
    the machine's own they then have the roots, `home_writable` and the private /tmp.
    """
    unreadable: str = ""
    """File without any permission that stands for hidden files; '' for an empty file."""
