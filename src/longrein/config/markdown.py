"""What instruction files mean beyond their text: comments that are not for the model, and `@path` imports."""

import re
from collections.abc import Iterator

_FENCE = r" {0,3}(`{3,}|~{3,})"
_COMMENT = r" {0,3}<!--"
_SPAN = r"(?s)(`+)(?!`).*?(?<!`)\1(?!`)"
_IMPORT = r"(?:^|(?<=[\s(]))@((?:~/|/)?[\w.][\w./+-]*|/[\w./+-]+)"


def without_comments(text: str) -> str:
    """`text` without HTML comments that begin a line; inside fenced code they stay. An unclosed one stays."""
    kept: list[str] = []
    fence = ""
    lines = text.splitlines(keepends=True)
    i = 0
    while i < len(lines):
        fence = _fence_after(fence, lines[i])
        if not fence and re.compile(_COMMENT).match(lines[i]):
            end = next((j for j in range(i, len(lines)) if "-->" in lines[j]), None)
            if end is not None:
                rest = lines[end].partition("-->")[2]
                kept.append(rest if rest.strip() else "")
                i = end + 1
                continue
        kept.append(lines[i])
        i += 1
    return "".join(kept)


def imports(text: str) -> Iterator[str]:
    """The paths after `@`, in order, each once; none from code spans and fenced code. Mail addresses are none."""
    seen: set[str] = set()
    for paragraph in _prose(text):
        for match in re.compile(_IMPORT).finditer(re.compile(_SPAN).sub(" ", paragraph)):
            path = match[1].rstrip(".")
            if path and path not in seen:
                seen.add(path)
                yield path


def _prose(text: str) -> Iterator[str]:
    """The text in paragraphs, without fenced code: a code span never reaches over an empty line."""
    fence, paragraph = "", ""
    for line in text.splitlines(keepends=True):
        before, fence = fence, _fence_after(fence, line)
        if fence or before or not line.strip():
            if paragraph:
                yield paragraph
            paragraph = ""
        else:
            paragraph += line
    if paragraph:
        yield paragraph


def _fence_after(fence: str, line: str) -> str:
    """The fence that is open after `line`; '' outside of fenced code."""
    match = re.compile(_FENCE).match(line)
    if not match:
        return fence
    if not fence:
        return match[1]
    closes = match[1][0] == fence[0] and len(match[1]) >= len(fence) and not line[match.end() :].strip()
    return "" if closes else fence
