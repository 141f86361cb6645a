"""The web console: pages on which a cluster is seen and changed, by a process that asks brokers over the wire.

Only `barnabas console` imports this package, and what it needs is in the extra `console`.
"""
