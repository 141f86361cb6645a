"""`barnabas reassign-partitions`: kafka-reassign-partitions with its flags, its files and its lines."""
