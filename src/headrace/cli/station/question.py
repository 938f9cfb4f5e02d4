"""Asking before something is forgotten."""

import click


def confirmed(question: str) -> bool:
    """Ask on standard error; no answer is a no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)
        return False
