"""Product: one immutable, named piece of data.

Reading a queue makes products; to send one, call `Queue.put` (put.py has its optional facts). `Product` says what every
product has. There are two kinds, and programs need not tell them apart:

    RowProduct    what reading makes: a place in a batch. Attributes are made when you ask for them, and the payload is
                  a view into the queue's memory, valid as long as the product or the view exists
                  (kernel/log/product.pxi)
    MadeProduct   one with values of its own: `product.copy()`, and products that were pickled or made from other data
"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.errors import HeadraceError
from headrace.product.options import NO_OPTIONS, Options
from headrace.product.properties import NO_PROPERTIES, PropertyValue

IDENT_BYTES_MAX = 1024
PRIORITY_MAX = 7
PRIORITY_DEFAULT = 4
SLICE_MAX = 65534
NO_SLICE = SLICE_MAX + 1  # how a record and a column say that a product has no slice

_EPOCH = datetime.fromtimestamp(0, UTC)
_SHOWN_BYTES = 40  # of a payload


class Product(ABC):
    """A data product and everything known about it. Times with `_ns` are nanoseconds since 1970, UTC."""

    __slots__ = ()

    feed: str
    ident: str
    payload: memoryview  # read-only; bytes(product.payload) copies it; FragmentError for a fragment
    sequence: int  # in the queue that it was read from
    signature: bytes  # 16 bytes that identify the content; empty without duplicate check
    origin: str  # id of the site where it was created
    origin_sequence: int  # its sequence there
    previous: int | None  # origin sequence of the feed's product before it; None if unknown
    created_ns: int
    inserted_ns: int  # into the queue it was read from
    priority: int  # 0 can wait … 7 most urgent
    expiry_ns: int | None  # readers skip it from then on
    slice: int | None
    properties: Mapping[str, PropertyValue]
    options: Options  # what Headrace itself reads; most products have none

    @property
    def size(self) -> int:
        """Bytes of payload."""
        return self.part.nbytes

    @property
    def part(self) -> memoryview:
        """The payload, also of a product that is a fragment of something larger; `payload` refuses that."""
        return self.payload

    @property
    def created(self) -> datetime:
        """When it was made, in UTC, to the microsecond."""
        return utc(self.created_ns)

    @property
    def inserted(self) -> datetime:
        """When it came into the queue it was read from, in UTC, to the microsecond."""
        return utc(self.inserted_ns)

    @property
    def expiry(self) -> datetime | None:
        """When it expires, in UTC, to the microsecond; None: never."""
        return None if self.expiry_ns is None else utc(self.expiry_ns)

    @property
    def bound_ns(self) -> int | None:
        """How far `created_ns` may be from the truth; None if that is not known."""
        return self.options.bound_us * 1000 or None

    @property
    def is_replay(self) -> bool:
        """Whether a replay put it: then it was created long before."""
        return self.options.replay is not None

    def copy(self) -> "Product":
        """The same product with a payload of its own, which does not keep the queue's memory."""
        return restore(*values_of(self))

    def __eq__(self, other: object) -> bool:
        return are_equal(self, other) if isinstance(other, Product) else NotImplemented

    def __hash__(self) -> int:
        return hash_of(self)

    def __repr__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, values_of(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MadeProduct(Product):
    """A product made of values."""

    feed: str
    ident: str
    payload: memoryview
    sequence: int
    signature: bytes
    origin: str
    origin_sequence: int
    previous: int | None
    created_ns: int
    inserted_ns: int
    priority: int = PRIORITY_DEFAULT
    expiry_ns: int | None = None
    slice: int | None = None
    properties: Mapping[str, PropertyValue] = field(default_factory=lambda: NO_PROPERTIES)
    options: Options = NO_OPTIONS


FIELDS = tuple(each.name for each in fields(MadeProduct))
_COMPARED = tuple("part" if name == "payload" else name for name in FIELDS)


def utc(nanoseconds: int) -> datetime:
    """The time as a datetime."""
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def values_of(product: Product) -> tuple[Any, ...]:
    """What `restore` makes the product from again; all of it can be pickled."""
    values = [getattr(product, "part" if name == "payload" else name) for name in FIELDS]
    values[2], values[-2] = bytes(values[2]), dict(values[-2])
    return tuple(values)


def restore(feed: str, ident: str, payload: bytes, *values: Any) -> MadeProduct:
    """The product with these values."""
    return MadeProduct(feed, ident, memoryview(payload), *values)


def are_equal(one: Product, other: Product) -> bool:
    """Whether both have equal values, whichever kind of product they are."""
    return one is other or all(getattr(one, name) == getattr(other, name) for name in _COMPARED)


def hash_of(product: Product) -> int:
    """Equal for equal products."""
    return hash((product.feed, product.ident, product.sequence, product.origin, product.origin_sequence))


def fragment_problem(product: Product) -> tuple[str, str]:
    """What to say to a program that takes a fragment for a whole product."""
    part = product.options.fragment
    assert part is not None
    which = "the manifest" if part.number == part.count - 1 else f"fragment {part.number + 1} of {part.count - 1}"
    return (
        f"product {product.sequence} of feed {product.feed} is {which} of something larger: {product.ident!r}",
        "join fragments: headrace.joined(batches); its own bytes are product.part",
    )


def text_of(product: Product) -> str:
    """For `repr`: what identifies the product, and the beginning of its payload."""
    more = f" … {product.size:,} bytes" if product.size > _SHOWN_BYTES else ""
    try:
        begin = f"{bytes(product.part[:_SHOWN_BYTES])!r}{more}"
    except HeadraceError:  # damaged, or in a form that only a newer Headrace or another site can read
        begin = f"{product.size:,} bytes that cannot be read"
    return f"<Product {product.sequence} {product.feed} {product.ident!r} {begin}>"


def html_of(product: Product) -> str:
    """For notebooks: every attribute that is set, and the beginning of the payload."""
    from headrace.notebook import facts_table, payload_text  # notebook.py says why it is imported here

    properties = ", ".join(f"{name}={value!r}" for name, value in product.properties.items())
    try:
        payload = payload_text(product.part)
    except HeadraceError as error:
        payload = str(error)
    return facts_table(f"Product {product.sequence}", [
        ("feed", product.feed), ("ident", product.ident or None), ("created", product.created),
        ("inserted", product.inserted), ("expiry", product.expiry), ("origin", product.origin),
        ("priority", product.priority), ("slice", product.slice), ("properties", properties or None),
        ("options", None if product.options is NO_OPTIONS else product.options),
        ("size", f"{product.size:,} bytes"), ("payload", payload),
    ])  # fmt: skip
