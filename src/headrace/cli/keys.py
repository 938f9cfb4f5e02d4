"""`headrace keys`: keys by which sites sign their products (docs/signatures.md)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.group import Group
from headrace.cli.options import json_option
from headrace.cli.output import echo_json, show_fields, show_table
from headrace.errors import OptionError
from headrace.text import visible
from headrace.units import format_time

if TYPE_CHECKING:
    from headrace.relay.signing.keyring import OriginKey


@click.group(cls=Group)
def keys() -> None:
    """Create, show and revoke the keys by which sites sign their products.

    \b
    Example:
      headrace keys create keys denver
      headrace keys list site.toml
    """


@keys.command(short_help="Create a key.")
@click.argument("folder", metavar="DIR")
@click.argument("name")
@json_option
def create(folder: str, name: str, as_json: bool) -> None:
    """Create the key of the site NAME, in the file NAME.sign.key in DIR.

    Only that site may have the file. Its file names it as key in [sign]; all other sites get the [[key]] that is shown.

    \b
    Example:
      headrace keys create keys denver
    """
    from headrace.relay.signing.keyring import id_text, key_id, make_key, public_text

    file, public = make_key(Path(folder), name)
    if as_json:
        echo_json({"file": str(file), "origin": name, "id": id_text(key_id(public)), "public": public_text(public)})
        return
    click.echo(visible(f"{file} is the private key of {name}: [sign] key = ..., for that site alone. For all others:"))
    click.echo(f'\n[[key]]\norigin = "{name}"\npublic = "{public_text(public)}"')


@keys.command(short_help="Show a key.")
@click.argument("file", metavar="FILE")
@json_option
def show(file: str, as_json: bool) -> None:
    """Show the id and the public key in FILE: a private or public key, or a certificate, in PEM.

    \b
    Example:
      headrace keys show keys/denver.sign.key
    """
    from headrace.relay.signing.keyring import FOREVER, id_text, key_id, public_text, read_public

    public, from_ns, until_ns = read_public(_existing(file))
    shown = {
        "id": id_text(key_id(public)), "public": public_text(public), "from": _time(from_ns) if from_ns else None,
        "until": _time(until_ns) if until_ns < FOREVER else None,
    }  # fmt: skip
    if as_json:
        echo_json(shown)
    else:
        show_fields(file, {name: value or "any time" for name, value in shown.items()})


@keys.command("list", short_help="List the keys that a site knows.")
@click.argument("file", metavar="SITE.toml")
@json_option
def list_keys(file: str, as_json: bool) -> None:
    """List the keys in the configuration of a site: its own, and those of other origins.

    \b
    Example:
      headrace keys list site.toml
    """
    from headrace.relay.signing.keyring import id_text
    from headrace.site.loading import load_config
    from headrace.site.terms import signing_of

    config = load_config(_existing(file))
    terms = signing_of(config)
    listed = [_row(each, revoked=each.id in terms.revoked) for each in terms.keys]
    own = terms.own
    if own is not None:
        listed.insert(0, {
            "origin": config.site.name, "id": id_text(own), "from": None, "until": None,
            "state": "revoked" if own in terms.revoked else "signs here",
        })  # fmt: skip
    if as_json:
        echo_json({"keys": listed})
    else:
        rows = [[str(row[name] or "") for name in ("origin", "id", "from", "until", "state")] for row in listed]
        show_table(file, ["origin", "id", "from", "until", "state"], rows)


@keys.command(short_help="Revoke a key.")
@click.argument("file", metavar="FILE")
@click.argument("number", metavar="ID")
@click.option("--reason", default="", metavar="TEXT", help="Written behind the id.")
@json_option
def revoke(file: str, number: str, reason: str, as_json: bool) -> None:
    """Add the key ID to FILE, which [sign] names as revoked; FILE is created if it does not exist.

    Products that were signed by the key are refused from the next reload of the site on, whenever they were put.
    Send SIGHUP to the site. Other sites need the line in their own files.

    \b
    Example:
      headrace keys revoke revoked.keys 3f2a91c00b7d5e12 --reason "stolen 2026-11-19"
    """
    from headrace.relay.signing.keyring import parse_id, read_revoked

    found, path = parse_id(number), Path(file)
    known = path.exists() and found in read_revoked(path)
    if not known:
        with path.open("a") as opened:
            opened.write(f"{number} {' '.join(reason.split())}".rstrip() + "\n")
    if as_json:
        echo_json({"file": file, "id": number, "was_revoked": known})
        return
    click.echo(
        visible(f"{number} {'was revoked already' if known else 'is revoked'} in {file}; send SIGHUP to the site")
    )


def _row(key: "OriginKey", *, revoked: bool) -> dict[str, Any]:
    from headrace.relay.signing.keyring import FOREVER, id_text

    return {
        "origin": key.origin, "id": id_text(key.id), "from": _time(key.from_ns) if key.from_ns else None,
        "until": _time(key.until_ns) if key.until_ns < FOREVER else None, "state": "revoked" if revoked else "known",
    }  # fmt: skip


def _existing(file: str) -> Path:
    path = Path(file)
    if not path.is_file():
        raise OptionError(f"{file} is not a file", "give the path of a file")
    return path


def _time(number: int) -> str:
    return format_time(number)
