"""The native kernel of the queue; see `_kernel.pyx` for its parts and `_kernel.pyi` for its types."""
