"""Several brokers as real processes: replication, failover, forwarding."""
