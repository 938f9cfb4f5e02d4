"""What every command and every group of commands has: suggestions for a word that does not exist.

A group knows the verbs of other tools (`add`, `rm`, `ls`) and names its own verb instead. They are errors and not
aliases, so that scripts and pages have one spelling: what persists is created and deleted.
"""

from typing import Any

import click

from headrace.cli.failure import did_you_mean

_OTHER_VERBS = {
    **dict.fromkeys(("add", "new", "make", "init"), "create"),
    **dict.fromkeys(("remove", "rm", "del", "drop"), "delete"),
    **dict.fromkeys(("ls", "all"), "list"),
    **dict.fromkeys(("describe", "status", "get", "view", "info"), "show"),
    **dict.fromkeys(("edit", "set", "update", "modify"), "change"),
}


class Command(click.Command):
    """A command."""


class Group(click.Group):
    """A group of commands; an unknown command is an error that suggests the ones that were probably meant."""

    command_class = Command

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"no_args_is_help": False, **settings})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not ctx.resilient_parsing and not word.startswith("-") and self.get_command(ctx, word) is None:
            raise click.UsageError(no_such_command(word, self.list_commands(ctx)), ctx)
        return super().resolve_command(ctx, args)


def no_such_command(word: str, known: list[str]) -> str:
    """The message for a command that does not exist, with the commands that were probably meant."""
    other = _OTHER_VERBS.get(word)
    question = f"; did you mean {other!r}?" if other in known else did_you_mean(word, known)
    return f"there is no command {word!r}{question}"
