"""The part of a cleaning that goes over records, in a process of its own."""
