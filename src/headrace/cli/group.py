"""What every command and every group of commands has: `--verbose`, a default queue, and suggestions.

A group knows the verbs of other tools (`add`, `rm`, `ls`) and names its own verb instead. They are errors and not
aliases, so that scripts and pages have one spelling: what persists is created and deleted.

QUEUE may be left out if there is a default (place.py). Words are counted, not guessed: if a command gets fewer words
than it requires, the queue is what was left out. Otherwise its first word is the queue, even if further words are
optional, as the files of `put` are; `@` in its place is the default.
"""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failure import did_you_mean, tell_details

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_VERBS = (  # that mean the same; a group has one of each row
    {"create", "add", "new", "make", "init"},
    {"delete", "remove", "rm", "del", "drop"},
    {"list", "ls", "all"},
    {"show", "info", "status", "describe", "get", "view"},
    {"change", "edit", "set", "update", "modify", "resize"},
    {"take", "consume", "read", "pop"},
)


def _set_verbose(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        tell_details()


def verbose_option() -> click.Option:
    """--verbose, which every command and every group has."""
    return click.Option(
        ["--verbose"], is_flag=True, expose_value=False, is_eager=True, callback=_set_verbose,
        help="Tell on standard error what is done, and where.",
    )  # fmt: skip


class QueueArgument(click.Argument):
    """The argument QUEUE. `explicit`: it must be written, because leaving it out by accident would do harm.

    completes: the words that complete it, `queue` or `site`.
    """

    def __init__(self, *args: Any, explicit: bool = False, completes: str = "queue", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.explicit, self.completes = explicit, completes

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """Queues and contexts; and what the next argument completes, because the queue may be left out."""
        from click.shell_completion import CompletionItem

        from headrace.cli.completion import words_for

        found = [CompletionItem(word) for word in words_for(self.completes, ctx, incomplete)]
        arguments = [param for param in ctx.command.params if isinstance(param, click.Argument)]
        ctx.params.pop(self.name or "", None)
        for after in arguments[arguments.index(self) + 1 :][:1]:
            found += after.shell_complete(ctx, incomplete)
        return found


class Command(click.Command):
    """A command. Its queue may be left out if there is a default."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params.append(verbose_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            self._add_default(ctx, args)
        return super().parse_args(ctx, args)

    def _add_default(self, ctx: click.Context, args: list[str]) -> None:
        """Write `@` where the queue was left out."""
        arguments = [param for param in self.params if isinstance(param, click.Argument)]
        queue = next((each for each in arguments if isinstance(each, QueueArgument)), None)
        if queue is None or queue.explicit or not self._lacks_words(ctx, list(args), arguments):
            return
        from headrace.cli.place import DEFAULT, has_default

        if has_default():
            args.insert(0 if queue is arguments[0] else len(args), DEFAULT)

    def _lacks_words(self, ctx: click.Context, args: list[str], arguments: list[click.Argument]) -> bool:
        if set(args) & set(ctx.help_option_names):
            return False
        values, _, _ = self.make_parser(ctx).parse_args(args)
        given = [values.get(each.name or "") for each in arguments]  # text, a tuple, or a mark for "not given"
        return sum(isinstance(value, str | tuple) and value != () for value in given) < sum(
            each.required for each in arguments
        )


class Group(click.Group):
    """A group of commands; an unknown command is an error that suggests the ones that were probably meant."""

    command_class = Command

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"no_args_is_help": False, **settings})
        self.params.append(verbose_option())

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not ctx.resilient_parsing and not word.startswith("-") and self.get_command(ctx, word) is None:
            raise click.UsageError(f"there is no command {word!r}{self.suggestion(ctx, word)}", ctx)
        return super().resolve_command(ctx, args)

    def suggestion(self, ctx: click.Context, word: str) -> str:
        """The end of the message about an unknown command: the ones that were probably meant."""
        known = self.list_commands(ctx)
        same = [verb for verb in known for verbs in _VERBS if word in verbs and verb in verbs]
        return f"; did you mean {same[0]!r}?" if same else did_you_mean(word, known)
