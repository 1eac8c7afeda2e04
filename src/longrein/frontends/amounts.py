"""Times, counts, sizes and sums as people read them. Pure."""

KB = 1_000


def elapsed(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 m 05 s`, `2 h 05 m`; '' below a twentieth of a second."""
    if seconds < 0.05:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} m"
    return f"{minutes} m {rest:02d} s" if minutes else f"{rest} s"


def since(seconds: float) -> str:
    """The same for what goes on and is drawn again now and then: `3 s`, `12 s`, `3 m`, `2 h 05 m`."""
    whole = max(int(seconds), 0)
    return f"{whole} s" if whole < 60 else f"{whole // 60} m" if whole < 3_600 else elapsed(whole)


def counted(count: int, word: str) -> str:
    """`1 prompt`, `3 prompts`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def tokens(count: int) -> str:
    """`950`, `12.3k`, `1.2M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def money(usd: float) -> str:
    """`$0.12`; four digits below a cent."""
    return f"${usd:.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.4f}"


def size(count: int) -> str:
    """Bytes: `0 B`, `950 B`, `12.3 kB`, `1.2 MB`, `10.0 GB`."""
    if count < KB:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_in = count / KB
        if count_in < KB:
            return f"{count_in:.1f} {unit}"
        count = int(count_in)
    return f"{count / KB:.1f} GB"
