"""SQL of rules: parsed by sqlglot in Spark's dialect, and checked before Spark starts.

Problems that are found here: syntax errors, several statements, tables and columns that do not exist, and operations
that a stream cannot do. Spark checks the rest, functions and types.

    select window.start, station, max(gust) as gust
    from decoded group by window(observed, '1 hour'), station

The query of a rule runs on a stream: it sees each row once, and the stream has no end. A query that aggregates rows
must say when a group is complete: by a watermark, and by grouping by its column.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope

from headrace.errors import RuleError
from headrace.pipeline.rules.template import at_place

SQL_MAX = 65536
DIALECT = "spark"
_WINDOWS = ("window", "session_window")  # columns that result from grouping by the function of that name
_WINDOW_CALL = re.compile(r"(?i)\bwindow(?=\s*\()")  # sqlglot parses it as a clause: use another name of that length
_BEFORE_CONDITION = "select * from rows where "  # makes a query of a condition
_RANDOM = (exp.Rand, exp.Randn, exp.Uuid)
_NOT_ANALYSED = (SqlglotError, RecursionError, AttributeError, KeyError)  # what sqlglot raises on valid SQL, too
_UNKNOWN = re.compile(r"Unknown column: (\w+)")

Columns = Mapping[str, Any]  # names, and Arrow types where they are known


class QueryAnalysis(NamedTuple):
    """What is known about a query."""

    errors: list[RuleError]
    columns: tuple[str, ...] | None  # of its rows; None: unknown


# --- reading --------------------------------------------------------------------------------------


def parse_query(text: str) -> Any:
    """The syntax tree of one query. RuleError has the position of a syntax error."""
    statements = [each for each in _parsed(text) if each is not None]
    if len(statements) != 1:
        what = f"{len(statements)} statements" if statements else "no query"
        raise RuleError(f"the text has {what}", "write one: select … from decoded")
    _refuse_loose_comma(text)
    if not isinstance(statements[0], exp.Query):
        what = statements[0].key.upper()
        raise RuleError(f"this is {what}, not a query", "write select … from decoded, and let an action store the rows")
    return statements[0]


def _refuse_loose_comma(text: str) -> None:
    """sqlglot accepts a comma before `from`; Spark does not."""
    tokens = sqlglot.tokenize(text, read=DIALECT)
    for comma, after in pairwise(tokens):
        if comma.token_type is TokenType.COMMA and after.token_type is TokenType.FROM:
            raise at_place(RuleError("a column is missing after the comma", "remove the comma"), text, comma.start)


def _parsed(text: str) -> list[Any]:
    if len(text) > SQL_MAX:
        raise RuleError(f"the query has {len(text)} characters", f"keep it within {SQL_MAX:,}")
    try:
        return sqlglot.parse(_WINDOW_CALL.sub("wind0w", text), read=DIALECT)
    except ParseError as error:
        raise _explained(error, text) from None
    except TokenError:
        raise RuleError("a quote or a comment is not closed", "close it") from None
    except RecursionError:
        raise RuleError("the query is nested too deeply", "use with … instead of nesting") from None


def _explained(error: ParseError, text: str) -> RuleError:
    detail = error.errors[0] if error.errors else {}
    problem = str(detail.get("description") or "it has a syntax error").rstrip(".")
    if problem.startswith("Required keyword"):
        problem = "something is missing here"
    before, shown = str(detail.get("start_context") or ""), str(detail.get("highlight") or "")
    place = _WINDOW_CALL.sub("wind0w", text).find(before + shown)
    hint = "see the reference of Spark SQL; text is in 'single quotes'"
    made = RuleError(f"not SQL: {problem[:1].lower()}{problem[1:]}", hint)
    return made if place < 0 else at_place(made, text, place + len(before))


def parse_condition(text: str) -> Any:
    """The syntax tree of a query with this condition. RuleError has the position of a syntax error."""
    if not text.strip():
        raise RuleError("the condition is empty", "write gust > 25")
    try:
        tree = parse_query(_BEFORE_CONDITION + text)
    except RuleError as error:
        if error.column is None:
            raise
        raise _at_condition(error, text) from None
    if set(tree.args) - {key for key, value in tree.args.items() if not value} - {"expressions", "from_", "where"}:
        raise RuleError("this is more than a condition", "write what may follow where: gust > 25")
    return tree


def _at_condition(error: RuleError, text: str) -> RuleError:
    """An error in the query of a condition, with its position in the condition."""
    return at_place(error, text, max(0, (error.column or 1) - 1 - len(_BEFORE_CONDITION)))


# --- names ----------------------------------------------------------------------------------------


def analyse_query(text: str, views: Mapping[str, Columns | None]) -> QueryAnalysis:
    """Check the names in a query that has been parsed before. A view may have unknown columns, None."""
    tree = parse_query(text)
    errors = list(_unknown_tables(tree, text, views))
    if errors:
        return QueryAnalysis(errors, None)
    known = {name: columns for name, columns in views.items() if columns is not None}
    try:
        qualified = _qualified(tree, known)
        errors += _unknown_columns(qualified, text, known)
        columns = _outputs(tree, qualified)
    except _NOT_ANALYSED as error:  # left to Spark, except for an unknown column
        columns = None
        errors += _reported_by_sqlglot(error, tree, text, known)
    return QueryAnalysis(errors, columns)


def check_condition(text: str, columns: Columns | None) -> list[RuleError]:
    """The errors of a condition on rows with these columns."""
    if columns is None:
        return []
    known = {"rows": columns}
    try:
        found = list(_unknown_columns(_qualified(parse_condition(text), known), _BEFORE_CONDITION + text, known))
    except _NOT_ANALYSED:
        return []
    return [_at_condition(error, text) for error in found]


def _reported_by_sqlglot(error: Exception, tree: Any, text: str, known: Mapping[str, Columns]) -> Iterator[RuleError]:
    """sqlglot itself refuses `d.staton` if the columns of `d` are known."""
    found = _UNKNOWN.search(str(error))
    if found is not None:
        offered = {name.lower() for columns in known.values() for name in columns}
        nodes = (node for node in tree.find_all(exp.Column) if node.name.lower() == found[1].lower())
        yield _at(_unknown(found[1], offered), next(nodes, tree), text)


def _tables(tree: Any) -> Iterator[Any]:
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and (table.db or table.name.lower() not in named):
            yield table


def _unknown_tables(tree: Any, text: str, views: Collection[str]) -> Iterator[RuleError]:
    for table in _tables(tree):
        if table.db or table.name.lower() not in views:
            name = f"{table.db}.{table.name}" if table.db else table.name
            hint = f"select from {' or '.join(views)}"
            if name == "decoded":
                hint = "give decode, or select from products"
            elif name == "products":
                hint = "select from decoded, which has their columns too, or remove decode"
            yield _at(RuleError(f"there is no table {name!r} here", hint), table, text)


def _qualified(tree: Any, known: Mapping[str, Columns]) -> Any:
    schema: dict[str, object] = {name: dict.fromkeys(columns, "unknown") for name, columns in known.items()}
    return qualify(
        tree.copy(), schema=schema, dialect=DIALECT, validate_qualify_columns=False, quote_identifiers=False,
        identify=False,
    )  # fmt: skip


def _unknown_columns(tree: Any, text: str, known: Mapping[str, Columns]) -> Iterator[RuleError]:
    seen: set[str] = set()
    for scope in traverse_scope(tree):
        sources = {name: _source_columns(source, known) for name, source in scope.sources.items()}
        if any(columns is None for columns in sources.values()):
            continue
        offered = {column for columns in sources.values() for column in columns or ()}
        for column in scope.columns:
            if column.name and not _resolves(column, scope, sources, offered) and column.name not in seen:
                seen.add(column.name)
                yield _at(_unknown(column.name, offered), column, text)


def _source_columns(source: Any, known: Mapping[str, Columns]) -> set[str] | None:
    """The columns of a table or of a subquery, in lower case; None: unknown."""
    if isinstance(source, exp.Table):
        columns = known.get(source.name.lower())
        return None if columns is None else {name.lower() for name in columns}
    if not isinstance(source, Scope) or not isinstance(source.expression, exp.Query):
        return None
    names = {name.lower() for name in source.expression.named_selects}
    return None if "*" in names or "" in names else names


def _resolves(column: Any, scope: Scope, sources: Mapping[str, set[str] | None], offered: set[str]) -> bool:
    name, table = column.name.lower(), column.table.lower()
    if table in sources:
        return name in (sources[table] or ())
    first = table or name  # a.b may be field b of column a
    if first in offered or first in _WINDOWS:
        return True
    own = column.find_ancestor(exp.Alias)  # `qualify` gives every selected column an alias
    aliases = {each.alias.lower() for each in scope.expression.find_all(exp.Alias) if each is not own}
    arguments = {each.name.lower() for lambda_ in scope.expression.find_all(exp.Lambda) for each in lambda_.expressions}
    is_outer = any(first == each.lower() for each in scope.outer_columns) or scope.is_correlated_subquery
    return first in aliases | arguments or is_outer


def _unknown(name: str, offered: set[str]) -> RuleError:
    near = difflib.get_close_matches(name.lower(), offered, 1)
    hint = f"did you mean {near[0]}?" if near else f"columns are: {', '.join(sorted(offered))}"
    return RuleError(f"there is no column {name!r}", hint)


def _outputs(tree: Any, qualified: Any) -> tuple[str, ...] | None:
    names = tree.named_selects if not tree.is_star else qualified.named_selects
    return None if "*" in names or "" in names else tuple(names)


def _at(error: RuleError, node: Any, text: str) -> RuleError:
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return at_place(error, text, min(starts)) if starts else error


# --- what a stream can do -------------------------------------------------------------------------


def stream_errors(text: str, watermark: str | None) -> Iterator[RuleError]:
    """Operations of a query that a stream cannot do; `watermark` is the column with the watermark."""
    tree = parse_query(text)
    if (order := tree.find(exp.Order)) is not None and not isinstance(order.parent, exp.Window | exp.WithinGroup):
        hint = "remove order by, and sort when you read the table"
        yield _at(RuleError("sorting needs an end, and a stream has none", hint), order, text)
    if (over := tree.find(exp.Window)) is not None:
        hint = "group by window(…) with a watermark instead"
        yield _at(RuleError("over (…) needs all rows, and a stream has no end", hint), over, text)
    for select in tree.find_all(exp.Select):
        yield from _grouping_errors(select, text, watermark)


def _grouping_errors(select: Any, text: str, watermark: str | None) -> Iterator[RuleError]:
    group = select.args.get("group")
    counts = any(_is_aggregate(part, select) for part in select.expressions)
    if group is None and not counts and not select.args.get("distinct"):
        return
    if watermark is None:
        hint = "give watermark = \"10min\" and group by window(observed, '1 hour')"
        yield RuleError("rows are aggregated, and nothing tells when a group is complete", hint)
    elif group is not None and not any(column.name == watermark for column in group.find_all(exp.Column)):
        hint = f"group by window({watermark}, '1 hour') too"
        problem = f"the groups never end: they do not contain {watermark!r}, the column of the watermark"
        yield _at(RuleError(problem, hint), group, text)
    elif group is None and counts:
        hint = f"group by window({watermark}, '1 hour')"
        yield RuleError("all rows of an endless stream are aggregated into one", hint)


def _is_aggregate(node: Any, select: Any) -> bool:
    found = node.find(exp.AggFunc)
    return found is not None and found.find_ancestor(exp.Select) is select and found.find_ancestor(exp.Window) is None


def is_random(text: str) -> bool:
    """Whether the same rows can give another result when the query is repeated."""
    return parse_query(text).find(*_RANDOM) is not None
