"""Histories of a queue (a share group) while workers, brokers, the store and the network fail, and their rules.

The rules are in `checker`. Two worlds write histories: whole brokers in simulation (`tests/simulation/whole/workers`),
where a seed costs a second, and real processes (`run`).
"""
