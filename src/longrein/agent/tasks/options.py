"""What may be set about background tasks."""

import msgspec


class TaskOptions(msgspec.Struct, frozen=True):
    """How tasks are kept and told of."""

    promote: bool = True
    """Whether a command that passes its time goes on in the background; else it is ended."""
    wake: bool = True
    """Whether an end wakes an agent that waits for its user."""
    wake_after_s: float = 0.5
    """How long more ends are waited for before it is woken."""
    stall_s: float = 45.0
    """Silence after which a task that seems to ask for something is told of; 0 for never."""
    timeout_s: float = 0
    """Time of a task that names none; 0 for no limit."""
    memory_bytes: int = 0
    """Resident memory of a task's tree; 0 for no limit."""
    cpu_s: float = 0
    """CPU of a task's tree; 0 for no limit."""
    quota_bytes: int = 64 * 1024 * 1024
    """Output kept of one task: its first and its newest half."""
    tail_bytes: int = 2_000
    """Of its end, told with the notice."""
    leave_s: float = 5.0
    """How long tasks that are ended when longrein leaves are waited for."""
