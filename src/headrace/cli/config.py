"""`headrace config`: check and show the configuration of a site, and print an example to start from."""

import click

from headrace.cli.failure import notice, show_problems
from headrace.cli.group import Group
from headrace.cli.options import json_option
from headrace.cli.output import echo_json
from headrace.text import visible


@click.group(cls=Group)
def config() -> None:
    """Check and show the configuration of a site, and print an example to start from.

    \b
    Example:
      headrace config example > site.toml
      headrace config check site.toml
    """


@config.command(short_help="List every problem in a configuration.")
@click.argument("path", metavar="FILE")
@click.option("--strict", is_flag=True, help="Count warnings as problems.")
@json_option
def check(path: str, strict: bool, as_json: bool) -> int:
    """List every problem in FILE, each with its line and its remedy. Exit code 2 if there is any.

    Warnings do not change the exit code, except with --strict. They say what is valid and unsafe: what gives others
    more than is probably meant, and what may end badly together with the configurations of other sites.
    The check reads the files and directories that FILE names, compares FILE with the queue if it exists, and changes
    nothing.

    \b
    Example:
      headrace config check site.toml --strict
      headrace config check site.toml && systemctl reload headrace@site
    """
    from headrace.site.loading import check_config, check_warnings

    warnings = check_warnings(path)
    if strict:
        return show_problems(path, [*check_config(path), *warnings], 0, as_json)
    for warning in warnings:
        notice(f"warning: {warning}; {warning.hint}", as_json, warning=warning)
    return show_problems(path, check_config(path), len(warnings), as_json)


@config.command(short_help="Show the values of a configuration.")
@click.argument("path", metavar="FILE")
@click.option("--effective", is_flag=True, help="Include the defaults, marked as such.")
@json_option
def show(path: str, effective: bool, as_json: bool) -> None:
    """Show the values in FILE, as valid TOML with absolute paths. Secrets are not shown: they stay in their files.

    \b
    Example:
      headrace config show site.toml --effective
    """
    from headrace.cli.config_values import GIVEN, toml_of, values_of
    from headrace.site.loading import load

    loaded = load(path)
    values = [value for value in values_of(loaded) if effective or value.source == GIVEN]
    if as_json:
        echo_json({"path": path, "values": values})
        return
    for line in toml_of(values, loaded, effective):
        click.echo(visible(line))


@config.command(short_help="Print an example that explains every key.")
@json_option
def example(as_json: bool) -> None:
    """Print a configuration in which every key is explained.

    \b
    Example:
      headrace config example > site.toml
    """
    from headrace.site.example import EXAMPLE

    if as_json:
        echo_json({"toml": EXAMPLE})
    else:
        click.echo(EXAMPLE, nl=False)
