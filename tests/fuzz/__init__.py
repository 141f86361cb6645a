"""Bytes that no client sends and no disk should hold: generated from a seed, and thrown at a broker.

    words.py      the values that requests are made of      schemas.py    requests of all APIs and versions from schemas
    mutations.py  what is done to good bytes                record_batches.py  batches, good and bad
    rules.py      what must hold: log, memory, event loop   broker.py     a whole broker in this process
    frames.py     requests straight into the dispatcher     sockets.py    writes to a real broker, beside a canary
    batches.py    batches produced, and read back           canary.py     a client that behaves, and must not notice
    files.py      a data directory with one file damaged    stopped_data.py  such a directory, with a bit of everything
    tree.py       a metadata tree with one node damaged

`python -m tests.fuzz KIND --count N --seed S` runs one kind and prints figures; the same seed makes the same bytes.
"""
