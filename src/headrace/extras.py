"""Extras: the libraries that only some parts of Headrace need, and what to install where one is missing.

    pip install headrace                  queues, stations, channels, selections, the command line
    pip install 'headrace[sites]'         sites, and queues at other sites
    pip install 'headrace[spark,delta]'   …

`require` is called where a part begins that needs an extra, before anything of it is imported, so that the error comes
at once and names everything that is missing. `explain` is for a program such as the command line, in which any import
may fail. The names of the extras are those of `[project.optional-dependencies]` in pyproject.toml.
"""

import sys
from importlib.util import find_spec
from typing import NamedTuple

from headrace.errors import MissingExtraError


class Extra(NamedTuple):
    purpose: str  # "… need packages"
    modules: tuple[str, ...]  # as they are imported


EXTRAS = {
    "sites": Extra("sites and remote queues", ("zenoh", "cryptography")),
    "spark": Extra("pipelines on Spark", ("pyspark", "py4j", "pandas")),
    "plots": Extra("plots", ("matplotlib",)),
    "delta": Extra("Delta tables", ("deltalake",)),
    "grib": Extra("GRIB and BUFR", ("eccodes",)),
    "pandas": Extra("DataFrames of pandas", ("pandas",)),
    "polars": Extra("DataFrames of polars", ("polars",)),
}


def require(*names: str) -> None:
    """Return if everything of these extras is installed; MissingExtraError says what to install."""
    missing = [name for name in names if not all(map(_is_installed, EXTRAS[name].modules))]
    if missing:
        raise _missing(*missing)


def explain(error: ModuleNotFoundError) -> MissingExtraError | None:
    """The extra whose absence caused a failed import; None if the module belongs to no extra."""
    module = (error.name or "").partition(".")[0]
    return next((_missing(name) for name, extra in EXTRAS.items() if module in extra.modules), None)


def _is_installed(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _missing(*names: str) -> MissingExtraError:
    purposes = ", ".join(EXTRAS[name].purpose for name in names)
    return MissingExtraError(
        f"{purposes} need packages that are not installed", f"pip install 'headrace[{','.join(names)}]'"
    )
