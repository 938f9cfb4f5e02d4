"""The native kernel of the queue; see `_kernel.pyx` for its parts and `_kernel.pyi` for its types."""

from headrace.kernel import _kernel

_FORMAT = 3  # of the control file, for which the rest of the package is written

if _kernel.FORMAT_VERSION != _FORMAT:
    raise ImportError(
        f"the kernel was built from another version of Headrace, format {_kernel.FORMAT_VERSION} instead of {_FORMAT}: "
        "build it again, with `pip install .` or `make test`"
    )
