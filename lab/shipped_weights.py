"""Print the module of the shipped weights from a file of `lab.fit`.

python -m lab.shipped_weights FILE ABOUT > ENGINE/clearing/weights.py
"""

import sys
from collections.abc import Sequence
from textwrap import wrap

from longrein.config.clearing_weights import Tables, read_weights

COLUMNS_MAX = 120


def module_text(tables: Tables, about: str) -> str:
    """Return the tables as a Python module."""
    out = [f'"""{about}"""\n', "# fmt: off"]
    for name, table in tables.items():
        out.append(f"{name.upper()}: dict[str, tuple[float, ...]] = {{")
        for term, weights in table.items():
            numbers = ", ".join(f"{weight:.2f}" for weight in weights) + "," * (len(weights) == 1)
            out += wrap(f'    "{term}": ({numbers}),', COLUMNS_MAX, subsequent_indent=" " * 8)
        out.append("}\n")
    out.append('TABLES = {"line": LINE}\n')
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
