"""Explain: what an error code of the kernel or of the operating system means for a queue, in words.

The kernel reports a code and the number of a file. Here they become an error of `errors.py` that names the file and the
remedy. If a put failed, its arguments are checked here, one by one, to name the one that is invalid.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.errors import (
    BatchTooLargeError,
    BlockedError,
    DiskFullError,
    HeadraceError,
    IdentError,
    InvalidError,
    NamesFullError,
    PayloadError,
    PayloadTooLargeError,
    QueueAccessError,
    QueueDamagedError,
    QueueError,
    QueueMovedError,
    QueueVersionError,
)
from headrace.files import IrregularFileError
from headrace.kernel import _kernel as kernel
from headrace.product.feed import check_feed
from headrace.product.product import IDENT_BYTES_MAX
from headrace.units import format_size

_OTHER_KINDS = (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.ESPIPE)
REPAIR = "run: headrace queue repair {path}"


@contextlib.contextmanager
def explaining(path: Path) -> Iterator[None]:
    """A kernel error leaves this context as a HeadraceError."""
    try:
        yield
    except kernel.KernelError as error:
        raise explain(error, path) from None


_TOO_LARGE = (
    "a product is at most a quarter of the queue, and a put of one product at most half of it, in fragments: resize "
    "the queue, or use headrace send for a file"
)


def segment_path(directory: Path, file: int) -> Path:
    """The path of the segment file with that number."""
    return directory / "segments" / f"{file:016x}.segment"


def explain(error: kernel.KernelError, path: Path) -> HeadraceError:
    """The error for a code of the kernel."""
    file = segment_path(path, error.file) if error.file else path
    if error.code == kernel.CODES["names_full"]:
        return NamesFullError(
            f"{path} has no room for another feed or origin",
            "use fewer feeds; idents may vary freely",
        )
    if error.code == kernel.CODES["batch_too_large"]:
        return BatchTooLargeError(f"{path} is too small for this batch", "put less at once, or resize the queue")
    if error.code == kernel.CODES["payload_too_large"]:
        return PayloadTooLargeError("a payload exceeds a quarter of the queue", _TOO_LARGE)
    if error.code == kernel.CODES["held"]:
        return BlockedError(
            f"{path} is full of products that blocking stations have not acknowledged yet; nothing was stored",
            "acknowledge what consumers hold, resize the queue, or remove the station",
        )
    if error.code == kernel.CODES["moved"]:  # log/place.py says it in more detail
        return QueueMovedError(
            f"the queue {path} was moved, deleted or replaced while it was open", "restart the program"
        )
    if error.code == kernel.CODES["newer"]:
        return QueueVersionError(f"{path} has stations in a format unknown to this Headrace", "upgrade Headrace")
    if error.code == kernel.CODES["damaged"] or error.code == -errno.ENOENT:
        return QueueDamagedError(f"{file} is missing, cut short or altered", REPAIR.format(path=path))
    return explain_os_error(OSError(-error.code, os.strerror(-error.code), str(path)), path)


def explain_os_error(error: OSError, path: Path) -> QueueError:
    """The error for the queue at `path` that an error of the operating system means."""
    where = error.filename or path
    if isinstance(error, IrregularFileError) or error.errno in _OTHER_KINDS:
        return QueueDamagedError(f"{where} is not a file of a queue: {error.strerror}", REPAIR.format(path=path))
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(
            f"the file system of {path} is full; nothing was stored",
            "free some space or resize the queue",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return QueueAccessError(
            f"{where} is not accessible: {error.strerror}",
            "run as its owner or a member of its group: the rights are those of the queue's directory",
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return QueueAccessError(f"too many open files for {path}", "raise the limit: ulimit -n")
    if error.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
        return QueueAccessError(f"{where} is not a valid path for a queue: {error.strerror}", "choose another path")
    return QueueError(f"{where}: {error.strerror or error}", "check the path and its permissions")


# --- arguments --------------------------------------------------------------------------------------


def explain_put(error: Exception, path: Path, payload_max: int, payload: Any, feed: Any, ident: Any) -> Exception:
    """The error that names the invalid argument, or what the kernel's code means."""
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, kernel.KernelError) and error.code == kernel.CODES["damaged"]:
        return explain(error, path)
    try:
        check_feed(feed)
    except InvalidError as problem:
        return problem
    fault = _check_ident(ident) or _check_payload(payload, payload_max)
    if fault is not None:
        return fault
    if isinstance(error, kernel.KernelError):
        return explain(error, path)
    return error


def _check_ident(ident: Any) -> IdentError | None:
    if not isinstance(ident, str):
        return IdentError(f"ident {ident!r} is not text", "give a str; bytes must be decoded first")
    try:
        size = len(ident.encode())
    except UnicodeEncodeError:
        return IdentError(f"ident {ident!r} is not UTF-8", "remove lone surrogates")
    if size > IDENT_BYTES_MAX:
        return IdentError(
            f"ident {ident[:40]!r}… has {size} bytes, more than {IDENT_BYTES_MAX}",
            "move the bulk into properties or payload",
        )
    return None


def _check_payload(payload: Any, payload_max: int) -> InvalidError | None:
    try:
        view = memoryview(payload)
    except TypeError:
        return PayloadError(f"the payload is a {type(payload).__name__}, not bytes", "encode it first")
    except (ValueError, BufferError):  # NumPy has no format for dates
        return PayloadError("the payload has no plain memory", "copy it first: payload.tobytes()")
    try:
        kernel.check_payload(payload)
    except TypeError:
        return PayloadError(
            "the payload has Python objects, not bytes", "encode it first, for example by pickle or JSON"
        )
    if not view.c_contiguous:
        return PayloadError("the payload is not contiguous in memory", "copy it first: bytes(payload)")
    if view.nbytes > payload_max:
        return PayloadTooLargeError(
            f"a payload of {view.nbytes} bytes exceeds the {format_size(payload_max)} that this queue takes",
            _TOO_LARGE,
        )
    return None


def explain_many(error: Exception, path: Path, payload_max: int, payloads: Any, idents: Any) -> Exception:
    """As `explain_put`, naming the product's index in the batch."""
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, kernel.KernelError) and error.code != kernel.CODES["payload_too_large"]:
        return explain(error, path)
    idents = idents.to_pylist() if hasattr(idents, "to_pylist") else idents  # Arrow's
    for place, payload in enumerate(payloads):
        ident = idents if isinstance(idents, str) else idents[place]
        problem = _check_ident(ident) or _check_payload(payload, payload_max)
        if problem is not None:
            return type(problem)(f"product {place} of the batch: {problem.problem}", problem.hint)
    return explain(error, path) if isinstance(error, kernel.KernelError) else error
