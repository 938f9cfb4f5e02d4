"""Build of the one native part of Headrace: the queue's kernel (Cython).

Everything else about the project stands in pyproject.toml.
"""

from pathlib import Path

import pyarrow
from Cython.Build import cythonize
from setuptools import Extension, setup

KERNEL = Path("src/headrace/kernel")

kernel = Extension(
    "headrace.kernel._kernel",
    [str(KERNEL / "_kernel.pyx"), str(KERNEL / "wide.c")],
    depends=[str(part) for part in sorted(KERNEL.rglob("*.pxi"))],
    include_dirs=[pyarrow.get_include()],
    define_macros=[("_GNU_SOURCE", "1"), ("XXH_INLINE_ALL", "1")],
    extra_compile_args=["-O3", "-std=gnu11", "-fno-strict-aliasing", "-pthread"],
    extra_link_args=["-pthread"],
)

setup(ext_modules=cythonize([kernel], language_level=3))
