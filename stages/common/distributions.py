"""Versions of installed packages, by the modules that they bring."""

import re
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions

NAME = re.compile(r"[A-Za-z0-9._-]+")


@lru_cache
def versions_behind(top: str) -> tuple[str, ...]:
    """`name==version` of the distribution that brings the top-level module, and of those that it requires, in order;
    nothing if no distribution brings it.
    """
    found = _bringing(top)
    if found is None:
        return ()
    required = [NAME.match(text) for text in found.requires or () if not re.search(r"\bextra\s*==", text)]
    others = [_distribution(match.group()) for match in required if match is not None]
    return tuple(sorted({_told(each) for each in (found, *others) if each is not None}))


@lru_cache
def version_behind(top: str) -> str | None:
    found = _bringing(top)
    return None if found is None else found.version


def _told(found: Distribution) -> str:
    return f"{found.metadata['Name']}=={found.version}"


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _bringing(top: str) -> Distribution | None:
    """Most bear the module's name; to ask which brings it takes long, as the files of all are looked through."""
    found = _distribution(top)
    if found is not None and re.search(rf"^{re.escape(top)}[./]", found.read_text("RECORD") or "", re.MULTILINE):
        return found
    names = _bringers().get(top, [])
    return _distribution(sorted(names)[0]) if names else None


@lru_cache
def _bringers() -> dict[str, list[str]]:
    return dict(packages_distributions())
