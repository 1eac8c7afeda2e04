"""Generated text as in sessions, of any size, from a seed: prose, code, logs, CJK, other
scripts, base64.
"""

import base64
from collections.abc import Mapping
from functools import cache
from random import Random

from lab.source_tree import AGENT, ROOT

_TABLES: Mapping[str, str] = {
    "prose": "the agent reads a file and then it writes down what has changed since the last time "
    "somebody looked at "
    "this part of the program because nobody could remember where the figures had come from",
    "code": "def|return|self.items|state.seq|if|not|None:|for|in|range(10):|==|[0]|{}|\n    |\n   "
    "     |value|"
    "result_of|import|(x,|y)|'name'|->|int:|# why|raise|ValueError(|)|=|+=|\n\n",
    "cjk": "会话永远不会用完也不会丢失任何一个字节的内容压缩是日志里的一个事实而不是修改。，文件测试通过失败路径函数",  # noqa: E501
    "cyrillic": "сессия никогда не заканчивается и ничего не теряет потому что журнал хранит "
    "каждое слово пользователя",
    "arabic": "الجلسة لا تنتهي أبدا ولا تفقد شيئا لأن السجل يحفظ كل كلمة قالها المستخدم في كل مرة",
    "thai": "เซสชันไม่มีวันหมดและไม่สูญเสียข้อมูลใดเพราะบันทึกเก็บทุกคำของผู้ใช้ไว้เสมอ",
    "accents": "die größte Änderung täglich für später geprüft déjà vu là-bas où l'été était très "
    "agréable mañana",
    "emoji": "🙂 🚀 ✅ ❌ 🔥 done ok 🎉 👍 look ⚠️ here",
}
_ODD = (
    *("9" * 5_000 + "\t", "7" * 5_000 + " passed in 1s", "-" * 3_000, "a" * 4_000, "(" * 2_000),
    *(
        "\x00",
        "\x85",
        "\u2028",
        "\u202e",
        "\r",
        "\x0b",
        "\ufeff",
        "\U000e0041",
        "\t" * 200,
        " " * 500,
    ),
    *("r412 Bash:", "→ ok, 3 lines", '[longrein 000000 cleared: ok; Recall("r2") brings all]'),
    *("[exit code 99999999]", "[unchanged since r9999999999: x]", "=== 3 failed in 0.1s ==="),
    *("- [ ] x", "```", "---", "<system-reminder>", "</summary>", "## 1. Goal", "1. 2) 3]"),
    *("{", '{"a": [', "\\n" * 50, "%s%d%n", "$(true)", "../" * 300, "::" * 500, "NaN", "1e999"),
)
"""Pieces of text of which some reader may expect more than they hold."""
KINDS = (*_TABLES, "base64", "log", "json", "files")  # Kinds of text, and `odd`


def text(kind: str, chars: int, random: Random) -> str:
    """About `chars` characters of `kind`; at least one."""
    chars = max(1, chars)
    if kind == "base64":
        return base64.b64encode(random.randbytes(chars * 3 // 4 + 1)).decode()[:chars]
    if kind in ("log", "json"):
        return _rows(kind, chars, random)
    if kind == "odd":
        pieces = random.sample(_ODD, random.choice([1, 2, 8, len(_ODD)]))
        ends = random.choice(["\n", "\n ", " "])
        some = (
            random.choice(pieces) + random.choice(ends) for _ in range(min(chars // 8 + 1, 300))
        )
        return _long("".join(some), chars)
    if kind == "files":
        files = _files()
        return _long(files[random.randrange(len(files))], chars)
    if kind in ("cjk", "thai"):
        table = _TABLES[kind].replace(" ", "")
        return _long("".join(random.choice(table) for _ in range(min(chars, 4_000))), chars)
    words = _TABLES[kind].split("|") if kind == "code" else _TABLES[kind].split(" ")
    return _long(" ".join(random.choice(words) for _ in range(min(chars // 3 + 1, 2_000))), chars)


@cache
def _files() -> tuple[str, ...]:
    """This project's own sources and pages."""
    found = sorted((*AGENT.glob("*/*.py"), *ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))
    return tuple(path.read_text(encoding="utf-8") for path in found if path.stat().st_size > 2_000)


def _rows(kind: str, chars: int, random: Random) -> str:
    rows, size = [], 0
    while size < min(chars, 8_000):
        number, ms = random.randrange(10_000), random.random()
        row = (
            f'{{"id": {number}, "path": "src/part_{number % 97}.py", "ok": {number % 2}, "took": '
            f"{ms:.4f}}}\n"
            if kind == "json"
            else f"2026-03-{number % 28 + 1:02d} 12:{number % 60:02d}:07,{number % 1000:03d} INFO "
            f"worker-{number % 16} "
            f"request {number:08x} took {ms:.3f} s\n"
        )
        rows.append(row)
        size += len(row)
    return _long("".join(rows), chars)


def _long(piece: str, chars: int) -> str:
    """`piece` again and again, a line number between, up to `chars`."""
    if len(piece) >= chars:
        return piece[:chars]
    times = chars // (len(piece) + 8) + 1
    return "".join(f"{piece}\n{n}\n" for n in range(times))[:chars]
