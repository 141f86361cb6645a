"""`barnabas groups`: kafka-consumer-groups with its flags, and the import of offsets from ZooKeeper."""
