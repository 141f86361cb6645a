"""Bytes and counts as people read them."""

from __future__ import annotations


def size_text(size: float, step: int = 1024) -> str:
    """A size in its largest unit: 1.5 KB is 1536 bytes, or with steps of 1000 it is 1500."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < step:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= step
    return f"{size:.1f} TB"


def counted(count: int, what: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
