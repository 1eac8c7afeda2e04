"""Print the module of the shipped weights from a file of `longrein fit`.

python -m benchmarks.shipped_weights FILE ABOUT > src/longrein/context/clearing/weights.py
"""

import sys
from collections.abc import Sequence

from longrein.config.clearing_weights import Tables, read_weights

COLUMNS = 16


def module_text(tables: Tables, about: str) -> str:
    """Return the tables as a Python module."""
    out = [f'"""{about}"""\n', "# fmt: off"]
    for name, table in tables.items():
        out.append(f"{name.upper()}: dict[str, tuple[float, ...]] = {{")
        for term, weights in table.items():
            numbers = [f"{weight:.2f}" for weight in weights]
            out.append(f'    "{term}": (')
            out += ["        " + ", ".join(numbers[k : k + COLUMNS]) + "," for k in range(0, len(numbers), COLUMNS)]
            out.append("    ),")
        out.append("}\n")
    out.append('TABLES = {"line": LINE, "word": WORD}\n')
    return "\n".join(out)


def main(words: Sequence[str]) -> int:
    """Run the command line."""
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    print(module_text(read_weights(words[0]).tables, words[1]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
