"""Whole brokers in simulation: what `broker/assembly` puts together, with other parts around it.

Three real brokers, their clients and everything that fails share one process and one event loop whose time is virtual
(`loop`). Connections, disks, clocks and the metadata store are in memory or on files that can lose what was not synced
(`network`, `disks`, `store`). Everything that chance decides comes from one seed (`plan`), so that a seed gives the
same world again, to the last byte, in every process and whatever ran before it.

Who takes part: idempotent producers, readers of committed records, transactions of both versions with offsets in them
(`transactors`), members of consumer groups and of classic groups (`members`, `classic`), commits from outside
(`committers`), a compacted topic with the cleaner (`compacted`), a topic with unclean elections and deleted records
(`loose`), topics that come and go and partitions that move (`admins`). What goes wrong: `nemesis`. What is held against
the rules: what clients saw (`judge`, and each of these modules), and the files of all replicas (`replicas`).

    python -m tests.simulation.whole --seeds 1000 --jobs 2   runs worlds, and names each that breaks a rule
    python -m tests.simulation.whole --start 17 --story      tells the story of one
    python -m tests.simulation.whole --start 17 --shrink     looks for a smaller one that breaks a rule
    python -m tests.simulation.whole --trial                 plants bugs (`planted`), and tells how soon each is found
"""
