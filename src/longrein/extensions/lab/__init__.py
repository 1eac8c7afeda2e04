"""The lab: recorded sessions under other context policies, and weights of the clearing policy
that are fitted on them.
"""

from longrein.extension_points import HELP, JSON, STATE_DIR, Command, flag

SIMULATED = ("default", "seed", "keep-all", "summary-92", "batch")
PRICE_TABLES = (
    *(
        "anthropic",
        "anthropic-1h",
        "openai10",
        "openai25",
        "openai50",
        "gemini",
        "deepseek",
        "local",
        "unknown",
    ),
)
WIRES = ("anthropic", "openai-chat", "openai-responses", "gemini")

FIT = Command(
    "fit",
    "[SESSION...] --out FILE [FLAGS]",
    "Fit the weights of the clearing policy on recorded sessions (files, folders, ids); "
    "nothing leaves the "
    "machine. See longrein simulate --weights.",
    (
        flag("--sessions", "folder of recorded sessions", "word", "FOLDER"),
        flag("--out", "file to write", "word", "FILE"),
        STATE_DIR,
        HELP,
    ),
    1000,
    run="longrein.extensions.lab.fit:fit",
    after="context",
)

SIMULATE = Command(
    "simulate",
    "SESSION... [FLAGS]",
    "Replay recorded sessions (files, folders, ids) through a policy, offline: what it "
    "costs and keeps.",
    (
        flag(
            "--policy",
            "default, seed (clears each turn), keep-all, summary-92 (a summary at 92 % of "
            "the window) or batch "
            "(old results in batches, then the same); without it all of them",
            "word",
            "NAME",
            SIMULATED,
        ),
        flag(
            "--prices",
            "ratios of cache read, cache write and output to input",
            "word",
            "NAME",
            PRICE_TABLES,
        ),
        flag("--window", "context window in tokens (200000)", "count", "N"),
        flag(
            "--wire",
            "wire of the provider, which decides what may be cleared",
            "word",
            "NAME",
            WIRES,
        ),
        flag(
            "--weights",
            "file of longrein fit, compared with the shipped weights",
            "word",
            "FILE",
        ),
        JSON,
        STATE_DIR,
        HELP,
    ),
    1000,
    1,
    run="longrein.extensions.lab.simulate:simulate",
    after="context",
)
