"""Administration over the wire: topics, configs, groups, replicas, transactions, features and log directories.

`Admin` and `NewTopic` are loaded when they are asked for: tools that do without them come through this package too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.clients.admin.admin import Admin
    from barnabas.clients.admin.topics import NewTopic

__all__ = ["Admin", "NewTopic"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from barnabas.clients.admin import admin, topics

    return getattr(admin if name == "Admin" else topics, name)
