"""A cluster in one thread without a clock: the real rules, and a world that does its worst to them.

    world      time, chance, the network, and processes that crash, hang and come back
    tree       the metadata tree: registrations, the controller, and writes that its term guards
    replica    a replica's log, which outlives its process, and how a follower brings it in line
    active_controller   the shell of a controller: decides, writes, sends metadata updates
    broker     the shell of a broker: leads, follows, proposes in-sync replicas
    promises   what must hold at every moment
    story      one run: a cluster, faults drawn from a seed, and a peaceful end
    bugs       mistakes that someone could make, each of which a run must find

Rules are the product's own: `machines/controller`, `machines/partition`, `machines/divergence`, the epochs of a log,
and the messages between controller and brokers. Shells are models, since the real ones do I/O.
"""
