"""`headrace certs`: create an authority and certificates for sites and users, and show them."""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.group import Group
from headrace.cli.options import json_option
from headrace.cli.output import echo_json, show_fields
from headrace.errors import FabricError, OptionError
from headrace.link.credentials import SITE_DAYS
from headrace.text import visible

if TYPE_CHECKING:
    from headrace.link.certificates import Certificate


@click.group(cls=Group)
def certs() -> None:
    """Create and show certificates, which identify sites and users to each other.

    \b
    Example:
      headrace certs authority certs
      headrace certs site certs denver --host denver.example.org
    """


@certs.command(short_help="Create an authority.")
@click.argument("folder", metavar="DIR")
@json_option
def authority(folder: str, as_json: bool) -> None:
    """Create an authority in DIR. Give authority.crt to every site and user; keep authority.key secret.

    \b
    Example:
      headrace certs authority certs
    """
    from headrace.link.certificates import make_authority

    _show_created(make_authority(folder), as_json)


@certs.command(short_help="Create a certificate for a site or user.")
@click.argument("folder", metavar="DIR")
@click.argument("name")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Its host name or address; may be repeated.")
@click.option("--days", type=int, default=SITE_DAYS, show_default=True, help="Validity in days.")
@json_option
def site(folder: str, name: str, hosts: tuple[str, ...], days: int, as_json: bool) -> None:
    """Create a certificate for the site or user NAME, signed by the authority in DIR.

    Give a --host for each name and address that others use to connect to the site. A user needs none.

    \b
    Example:
      headrace certs site certs denver --host denver.example.org --host 192.0.2.7
      headrace certs site certs alice
    """
    from headrace.link.certificates import make_certificate

    _show_created(make_certificate(folder, name, hosts, days=days), as_json)


@certs.command(short_help="Show the names and dates of a certificate.")
@click.argument("file", metavar="FILE")
@json_option
def show(file: str, as_json: bool) -> int:
    """Show the names and dates of the certificate in FILE. Exit code 1 if it has expired.

    \b
    Example:
      headrace certs show certs/denver.crt
    """
    from headrace.link.certificates import describe

    try:
        shown = describe(file)
    except FabricError as error:  # here the certificate is the input, not a way to connect
        raise OptionError(error.problem, error.hint) from None
    if as_json:
        echo_json(_values(shown))
    else:
        show_fields(file, _fields(shown))
    return NEGATIVE if shown.days_left() < 0 else OK


def _show_created(created: "Certificate", as_json: bool) -> None:
    if as_json:
        echo_json(_values(created))
        return
    valid = f"{created.name}, valid until {created.expires:%Y-%m-%d}"
    click.echo(visible(f"{valid}: {created.path} and {created.key_path}"))


def _values(of: "Certificate") -> dict[str, Any]:
    values = {
        "path": str(of.path),
        "name": of.name,
        "issuer": of.issuer,
        "hosts": of.hosts,
        "authority": of.is_authority,
        "starts": of.starts,
        "expires": of.expires,
        "days_left": round(of.days_left(), 3),
        "expired": of.days_left() < 0,
        "fingerprint": of.fingerprint,
    }
    return values if of.key_path is None else {**values, "key": str(of.key_path)}


def _fields(of: "Certificate") -> dict[str, object]:
    left = of.days_left()
    return {
        "name": of.name,
        "kind": "authority" if of.is_authority else "site or user",
        "hosts": ", ".join(of.hosts) or "none",
        "issued by": of.issuer,
        "valid from": f"{of.starts:%Y-%m-%d %H:%M} UTC",
        "valid until": f"{of.expires:%Y-%m-%d %H:%M} UTC",
        "days left": "0, expired" if left < 0 else int(left),
        "fingerprint": of.fingerprint,
    }
