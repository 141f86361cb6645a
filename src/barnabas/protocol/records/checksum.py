"""CRC-32C, the checksum of record batches, through the hardware-backed `crc32c` package.

Importing that package costs tens of milliseconds, because its `__init__` asks importlib.metadata for its own version;
only the compiled module inside is of use here. So the module is loaded without its package where it lies as usual, and
through the package otherwise.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer


class _Checksum(Protocol):
    def __call__(self, data: Buffer, value: int = 0) -> int: ...


def _load() -> _Checksum:
    if "crc32c" not in sys.modules:
        package = PathFinder.find_spec("crc32c")
        if package is not None and package.submodule_search_locations:
            spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
            if spec is not None and spec.loader is not None:
                module = module_from_spec(spec)
                spec.loader.exec_module(module)
                return cast("_Checksum", module.crc32c)
    from crc32c import crc32c as function

    return function


crc32c = _load()
"""The CRC-32C of some data, going on from `value`, the CRC of what came before it."""
