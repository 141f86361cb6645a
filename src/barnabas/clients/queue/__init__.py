"""A topic as a queue: each message goes to one worker, which acknowledges it (share groups, KIP-932).

    queue.py        Queue: what a program uses             message.py     a message, and what becomes of it
    engine.py       what all parts share: the messages that wait, and whether it goes on
    membership.py   heartbeats to the group coordinator, and which broker leads what
    leader.py       fetches from one leader and acknowledges to it, in a thread
    pending.py      acknowledgements that are on their way
    session.py      the share session with one leader, without I/O
    acquired.py     the records of an answer that were acquired

Why not over confluent-kafka's ShareConsumer: it cannot renew a lock, and wants all messages of a poll acknowledged
before the next one, so that one long piece of work stops all others of the same worker.
"""

from __future__ import annotations

from barnabas.clients.queue.queue import Queue

__all__ = ["Queue"]
