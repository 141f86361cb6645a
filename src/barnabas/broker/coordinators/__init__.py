"""Group and transaction coordinators: machines over the partitions of internal topics that this broker leads."""
