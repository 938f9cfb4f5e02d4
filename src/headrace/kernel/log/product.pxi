# Products: one row as an object, whose attributes are made when they are asked for.
#
# Most programs look at the feed, the ident and the payload, so making all its attributes of each product would
# cost more than reading it. A RowProduct is a place in its Rows, which stay pinned as long as it exists.
# headrace.product.product says what each attribute means; a RowProduct is a Product by registration.

from headrace.product.options import NO_OPTIONS, decode_options
from headrace.errors import FragmentError
from headrace.product.product import Product, are_equal, fragment_problem, hash_of, html_of, restore, text_of, utc
from headrace.product.properties import decode_properties

cdef object no_properties = decode_properties(b"")


@cython.no_gc                        # Rows have no way back to it
@cython.freelist(256)
@cython.final
cdef class RowProduct:
    """The product at one place of a batch."""
    cdef Rows rows
    cdef object names                # the feeds and origins that numbers in the rows mean
    cdef uint32_t place

    cdef inline Ref *ref(self) noexcept:
        return &self.rows.refs[self.place]

    @property
    def feed(self):
        return self.names[<Py_ssize_t>self.ref().feed]

    @property
    def ident(self):
        return self.rows.ident(self.place)

    @property
    def payload(self):
        cdef Ref *ref = self.ref()
        if ref.options_bytes and ref.form != FORM_UNKNOWN and self.is_fragment():
            raise FragmentError(*fragment_problem(self))
        return self.rows.view(self.place)

    @property
    def part(self):
        return self.rows.view(self.place)

    cdef bint is_fragment(self) noexcept:
        cdef Ref *ref = self.ref()
        return find_option(<const uint8_t *>options_of(ref), ref.options_bytes, OPTION_FRAGMENT) is not NULL

    @property
    def size(self):
        return self.ref().payload_bytes

    @property
    def sequence(self):
        return self.ref().sequence

    @property
    def signature(self):
        return PyBytes_FromStringAndSize(<char *>self.ref().signature, 16) if self.ref().kind else b""

    @property
    def origin(self):
        return self.names[<Py_ssize_t>self.ref().origin]

    @property
    def origin_sequence(self):
        return self.ref().origin_sequence

    @property
    def previous(self):
        return self.ref().previous or None

    @property
    def created_ns(self):
        return self.ref().created_ns

    @property
    def created(self):
        return utc(self.ref().created_ns)

    @property
    def inserted_ns(self):
        return self.ref().inserted_ns

    @property
    def inserted(self):
        return utc(self.ref().inserted_ns)

    @property
    def priority(self):
        return self.ref().priority

    @property
    def expiry_ns(self):
        return self.ref().expires_ns or None

    @property
    def expiry(self):
        return utc(self.ref().expires_ns) if self.ref().expires_ns else None

    @property
    def slice(self):
        return None if self.ref().slice == NO_SLICE else self.ref().slice

    @property
    def properties(self):
        return decode_properties(self.rows.properties(self.place)) if self.ref().properties_bytes else no_properties

    @property
    def options(self):
        return decode_options(self.rows.options(self.place)) if self.ref().options_bytes else NO_OPTIONS

    @property
    def bound_ns(self):
        return self.options.bound_us * 1000 or None

    @property
    def is_replay(self):
        return self.options.replay is not None

    def copy(self):
        return restore(*self.__reduce__()[1])

    def __eq__(self, other):
        return are_equal(self, other) if isinstance(other, Product) else NotImplemented

    def __hash__(self):
        return hash_of(self)

    def __repr__(self):
        return text_of(self)

    def _repr_html_(self):
        return html_of(self)

    def __reduce__(self):
        return restore, (
            self.feed, self.ident, bytes(self.part), self.sequence, self.signature, self.origin,
            self.origin_sequence, self.previous, self.created_ns, self.inserted_ns, self.priority, self.expiry_ns,
            self.slice, dict(self.properties), self.options)


Product.register(RowProduct)


def place_of(RowProduct product not None):
    """The rows that a product is in, and its place there."""
    return product.rows, product.place


cdef inline RowProduct row_product(Rows rows, object names, uint32_t place):
    cdef RowProduct product = RowProduct.__new__(RowProduct)
    product.rows, product.names, product.place = rows, names, place
    return product


@cython.no_gc
@cython.final
cdef class RowProducts:
    """The products of a batch, one after the other."""
    cdef Rows rows
    cdef object names
    cdef size_t place

    def __iter__(self):
        return self

    def __next__(self):
        if self.place >= self.rows.count:
            raise StopIteration
        self.place += 1
        return row_product(self.rows, self.names, <uint32_t>(self.place - 1))
