"""Names of a package whose modules are imported at first use, so that no start pays for them."""

from collections.abc import Callable, Mapping
from importlib import import_module


def names_at_first_use(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of `package`. `modules`: module below it -> the names that it
    gives the package. No name is that of a module: its import would put the module in its place.
    """
    homes = {
        name: f"{package}.{module}" for module, names in modules.items() for name in names.split()
    }

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(homes[name]), name)
        setattr(import_module(package), name, found)  # Python would ask twice for each import
        return found

    return get
