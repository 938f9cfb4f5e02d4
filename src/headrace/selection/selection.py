"""Selection: which products a reader selects.

    Selection("wx/radar/**")                            every product below wx/radar
    Selection("wx/**", ident=r"^SA.. K", priority=">=5")
    Selection.parse('wx/** ident ~ "^SA.. K" priority 5.. where level > 3')
    Selection.from_dict({"feed": "wx/**", "tags": {"run": 5}})

There are three ways to write one: arguments, text (parsing.py), and a mapping as TOML and JSON have it;
docs/selections.md shows them side by side. Everything is validated when a selection is made, and values with the same
meaning have one form, so that equal selections compare equal, hash equal, and have one text. All clauses must hold; a
clause that is not given selects everything. A selection can be pickled, unless its function cannot. A function that is
only named has to be `bound` by the process that evaluates the selection (functions.py).

Where a clause is decided: `feed`, `priority`, `origin` and `slices` by index rows, once per name; `ident` by columns;
the rest by records and payloads (matching.py). `every` counts, so it needs state: `wants` and `mask` leave it to the
reader or the station.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headrace.errors import SelectionError
from headrace.product.batch import Batch
from headrace.product.feed import FeedPattern
from headrace.product.product import Product
from headrace.product.properties import PropertyValue
from headrace.selection import matching, parsing, values
from headrace.selection.clauses import Tags, check_regex, found_in, tags_dict, tags_expression, tags_of
from headrace.selection.functions import Function, Functions, Guarded, Named
from headrace.selection.pattern import canonical_pattern
from headrace.selection.writing import write

if TYPE_CHECKING:
    from headrace.selection.where.expression import Expression
    from headrace.selection.where.scalar import Evaluate
    from headrace.selection.where.where import Where
    from headrace.selection.xpath import XPath

KEYS = (
    "feed", "ident", "not_ident", "tags", "priority", "origin", "slices", "created", "max_age_s", "replay", "every",
    "xpath", "where", "function",
)  # fmt: skip
ROW_CLAUSES = frozenset(["feed", "priority", "origin", "slices"])  # index rows decide them
_EVERY_PRIORITY = 255


@dataclass(frozen=True, slots=True, init=False)
class Selection:
    """What a reader selects; an empty selection selects everything. Attributes hold the canonical values."""

    feed: str | None
    ident: str | None
    not_ident: str | None
    tags: Tags | None  # pairs of a property's name and the values that it may have
    priority: tuple[int, int] | None  # lowest and highest
    origin: tuple[str, ...] | None
    slices: tuple[int, ...] | None
    created: tuple[int | None, int | None] | None  # from, and up to but not including
    max_age_s: float | None  # since its creation
    replay: bool | str | None  # whether a replay put it; or which one, by its run
    every: int
    xpath: str | None
    where: str | None
    function: Function | str | None  # or its name
    pattern: FeedPattern | None = field(repr=False, compare=False)
    compiled: "Compiled" = field(repr=False, compare=False)

    def __init__(
        self, feed: str | None = None, *, ident: str | None = None, not_ident: str | None = None,
        tags: Iterable[int] | Mapping[str, PropertyValue | Iterable[PropertyValue]] | Tags | int | None = None,
        priority: int | str | tuple[int | None, int | None] | None = None, origin: str | Iterable[str] | None = None,
        slices: int | str | Iterable[int] | None = None,
        created: str | tuple[str | int | datetime | None, str | int | datetime | None] | None = None,
        max_age_s: float | str | None = None, replay: bool | str | None = None, every: int = 1,
        xpath: "str | XPath | None" = None, where: "str | Where | None" = None, function: Function | str | None = None,
    ) -> None:  # fmt: skip
        """SelectionError names the invalid argument; docs/selections.md says what each may be."""
        pattern = None if feed is None else canonical_pattern(feed)
        compiled_clauses = Compiled.of(tags, where, xpath, function)
        canonical = {
            "feed": None if pattern is None else pattern.text,
            "ident": None if ident is None else check_regex(ident, "ident"),
            "not_ident": None if not_ident is None else check_regex(not_ident, "ident"),
            "tags": None if tags is None else tags_of(tags),
            "priority": None if priority is None else values.priority_of(priority),
            "origin": None if origin is None else values.origin_of(origin),
            "slices": None if slices is None else values.slices_of(slices),
            "created": None if created is None else values.created_of(created),
            "max_age_s": None if max_age_s is None else values.max_age_of(max_age_s),
            "replay": None if replay is None else values.replay_of(replay),
            "every": values.every_of(every),
            "xpath": None if compiled_clauses.xpath is None else compiled_clauses.xpath.text,
            "where": None if compiled_clauses.where is None else compiled_clauses.where.text,
            "function": function,
            "pattern": pattern,
            "compiled": compiled_clauses,
        }
        for name, value in canonical.items():
            object.__setattr__(self, name, value)

    # --- other forms ------------------------------------------------------------------------------

    @classmethod
    def of(cls, wanted: "Selection | str | Mapping[str, Any] | Function | None") -> "Selection":
        """A selection from whatever a caller may give: a Selection, its text, a mapping, a function, or None."""
        if wanted is None:
            return cls()
        if isinstance(wanted, Selection):
            return wanted
        if isinstance(wanted, str):
            return cls.parse(wanted)
        if isinstance(wanted, Mapping):
            return cls.from_dict(wanted)
        if callable(wanted):
            return cls(function=wanted)
        raise SelectionError(f"{wanted!r} is not a selection", "give a feed pattern, a text, or Selection(…)")

    @classmethod
    def parse(cls, text_form: str) -> "Selection":
        """From its text; a SelectionError has the column of the problem."""
        return cls(**parsing.parse(text_form))

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> "Selection":
        """From a mapping as in TOML and JSON; the keys are the names of the arguments."""
        if not isinstance(mapping, Mapping):
            raise SelectionError(f"{mapping!r} is not a mapping", "give a table of clauses")
        for key in mapping:
            if key not in KEYS:
                raise SelectionError(f"a selection has no {key!r}", f"it has {', '.join(KEYS)}")
        return cls(**mapping)

    def to_dict(self) -> dict[str, Any]:
        """As JSON and TOML can hold it; SelectionError if it has a Python function, which they cannot hold."""
        if callable(self.function):
            raise SelectionError("a selection with a Python function has no text", "use where, or name the function")
        given = self.given()
        shown: dict[str, Callable[[Any], Any]] = {
            "tags": tags_dict, "slices": values.slices_text, "created": values.created_text, "origin": list,
            "priority": lambda pair: pair[0] if pair[0] == pair[1] else values.priority_text(pair),
        }  # fmt: skip
        return {name: shown[name](value) if name in shown else value for name, value in given.items()}

    def given(self) -> dict[str, Any]:
        """The canonical arguments that differ from their default."""
        given = {name: value for name in KEYS if (value := getattr(self, name)) is not None}
        if self.every == 1:
            del given["every"]
        return given

    def __str__(self) -> str:
        """The canonical text. A Python function is shown in angle brackets; `parse` refuses such a text."""
        return write({name: getattr(self, name) for name in KEYS})

    def replace(self, **changes: Any) -> "Selection":
        """The same with some arguments changed; None removes a clause."""
        arguments = {**self.given(), **changes}
        if arguments.get("every") is None:
            arguments["every"] = 1
        return Selection(**arguments)

    def bound(self, functions: Functions) -> "Selection":
        """The same, with the function that it names, if it does; SelectionError if there is no such function."""
        if not isinstance(self.function, str):
            return self
        bound = self.replace()
        object.__setattr__(bound, "compiled", replace(bound.compiled, function=functions.get(self.function)))
        return bound

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.given(),)

    # --- what index rows decide -------------------------------------------------------------------

    @property
    def is_cheap(self) -> bool:
        """Whether index rows decide everything but `every`."""
        return self.is_by_ident_alone and self.ident is None and self.not_ident is None

    @property
    def is_by_ident_alone(self) -> bool:
        """Whether index rows decide everything but `every` and, if given, the ident."""
        timeless = self.created is None and self.max_age_s is None
        return timeless and self.replay is None and self.compiled.is_empty

    @property
    def priorities(self) -> int:
        """One bit for each of the eight priorities."""
        if self.priority is None:
            return _EVERY_PRIORITY
        low, high = self.priority
        return sum(1 << priority for priority in range(low, high + 1))

    def wants_feed(self, feed: str) -> bool:
        return self.pattern is None or self.pattern.matches(feed)

    def wants_origin(self, origin: str) -> bool:
        return self.origin is None or origin in self.origin

    # --- the rest ---------------------------------------------------------------------------------

    def wants_names(self, feed: str, ident: str) -> bool:
        """Decide by feed and ident alone; slow, one product at a time."""
        return self.wants_feed(feed) and matching.wants_ident(self, ident)

    def wants_idents(self, idents: Any) -> npt.NDArray[np.bool_]:
        """For an Arrow string array: which idents are selected."""
        wanted = np.ones(len(idents), np.bool_) if self.ident is None else found_in(self.ident, idents)
        return wanted if self.not_ident is None else wanted & ~found_in(self.not_ident, idents)

    def mask(self, batch: Batch, now_ns: int = 0) -> npt.NDArray[np.bool_]:
        """For each product of a batch, whether all clauses select it that index rows do not decide.

        `max_age_s` is measured against `now_ns`, or the clock if that is 0.
        """
        places = matching.narrowed(self, batch, np.arange(len(batch)), now_ns)
        mask = np.zeros(len(batch), np.bool_)
        mask[places] = True
        return mask

    def wants(self, product: Product, now_ns: int = 0) -> bool:
        """Decide one product, by everything but `every`; slow."""
        return matching.refused_by(self, product, now_ns) is None

    def refused_by(self, product: Product, now_ns: int = 0) -> str | None:
        """The first clause that rejects the product; None if none does."""
        return matching.refused_by(self, product, now_ns)

    @property
    def function_failures(self) -> int:
        """How many products were not selected because the function raised."""
        return 0 if self.compiled.function is None else self.compiled.function.failures


@dataclass(frozen=True, slots=True)
class Compiled:
    """The expensive clauses, compiled; the modules that evaluate them are imported only where they are used."""

    tags: "Expression | None"
    tags_of_one: "Evaluate | None"  # the same for one product
    where: "Where | None"
    xpath: "XPath | None"
    function: Guarded | Named | None

    @classmethod
    def of(cls, tags: Any, where: Any, xpath: Any, function: Any) -> "Compiled":
        if where is not None:
            from headrace.selection.where.where import Where

            where = where if isinstance(where, Where) else Where(where)
        if xpath is not None:
            from headrace.selection.xpath import XPath

            xpath = xpath if isinstance(xpath, XPath) else XPath(xpath)
        demanded = of_one = None
        if tags is not None:
            from headrace.selection.where.scalar import compiled

            demanded = tags_expression(tags_of(tags))
            of_one = compiled(demanded)
        guarded = None if function is None else Named(function) if isinstance(function, str) else Guarded(function)
        return cls(demanded, of_one, where, xpath, guarded)

    @property
    def is_empty(self) -> bool:
        return self.tags is None and self.where is None and self.xpath is None and self.function is None


def _restored(arguments: dict[str, Any]) -> Selection:
    return Selection(**arguments)
