"""Where the sources of the three distributions are."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ROOT / "packages"
AGENT = PACKAGES / "longrein/src/longrein"
ENGINE = PACKAGES / "longrein-context/src/longrein_context"
FLEET = PACKAGES / "longrein-fleet/src/longrein_fleet"
TREES = (ENGINE, AGENT, FLEET)


def module_file(module: str) -> Path:
    """Return the file of a module, or that of a package.

    >>> module_file("longrein.agent.loop").relative_to(AGENT)
    PosixPath('agent/loop.py')
    """
    top, *below = module.split(".")
    path = next(tree for tree in TREES if tree.name == top).joinpath(*below)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
