"""Address: the text by which a program names the queue of a site.

    tcp/denver.example.org:7447          the site that listens at this endpoint
    tcp/192.0.2.7:7447?site=denver       the site `denver`, reached through this endpoint
    site:denver                          the site `denver`, wherever it is found (`remote/client/find.py`)

A directory whose name begins like one of these is written with `./` before it.
"""

from typing import NamedTuple

from headrace.errors import OptionError
from headrace.link.endpoint import PROTOCOLS, check_endpoint

SITE = "site:"


class Address(NamedTuple):
    """An endpoint, the name of a site, or both."""

    endpoint: str | None
    site: str | None

    def __str__(self) -> str:
        if self.endpoint is None:
            return f"{SITE}{self.site}"
        return self.endpoint if self.site is None else f"{self.endpoint}?site={self.site}"


def is_remote(where: str) -> bool:
    """Whether `where` begins like an address of a site, or like a URL, which `parse_address` explains."""
    return where.startswith(SITE) or where.partition("/")[0].lower().removesuffix(":") in PROTOCOLS


def parse_address(where: str) -> Address:
    """The parts of an address; OptionError if it is invalid."""
    if where.startswith(SITE):
        return Address(None, check_site(where.removeprefix(SITE)))
    address, mark, options = where.partition("?")
    endpoint = check_endpoint(address)
    if not mark:
        return Address(endpoint, None)
    key, _, site = options.partition("=")
    if key != "site":
        raise OptionError(f"{where!r} has the unknown option {key!r}", f"write {endpoint}?site=NAME")
    return Address(endpoint, check_site(site))


def check_site(name: str) -> str:
    """The name of a site, which is the origin of what is put there; OptionError if it is invalid."""
    from headrace.product.put import check_origin  # loads NumPy, which most commands need only later

    try:
        return check_origin(name)
    except OptionError as error:
        raise OptionError(f"{name!r} is not the name of a site", error.hint) from None
