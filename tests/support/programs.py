"""Programs that tests run as processes of their own."""

from __future__ import annotations

from typing import Final

END_TOGETHER: Final = """
import fcntl, os, signal, sys, time
from pathlib import Path
root, number, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def told(*_):
    (root / f"told-{number}").touch()
    while len(list(root.glob("told-*"))) < count:
        time.sleep(0.01)
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
if (root / number).is_dir():
    lock = os.open(root / number / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
(root / f"ready-{number}").touch()
while True:
    signal.pause()
"""
"""`FOLDER NUMBER COUNT`: ends by SIGTERM once so many of them were told to. Holds the lock on FOLDER/NUMBER, if any."""
