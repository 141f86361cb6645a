"""Imports in threads: one thread at a time.

Handlers, codecs and coordinators are imported when they are first needed, in threads of a pool. Two threads that import
modules of one package at the same time may each wait for what the other one holds, which Python ends with an error in
one of them. Whoever imports in a thread holds IMPORTING meanwhile.
"""

from __future__ import annotations

import threading
from typing import Final

IMPORTING: Final = threading.Lock()
