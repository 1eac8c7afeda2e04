"""Chinese texts of the terminal, by the English text. Placeholders such as `{count}` stand in both."""

TEXTS = {
    "waiting": "等待",
}
