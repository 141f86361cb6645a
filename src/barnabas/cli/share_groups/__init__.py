"""`barnabas share-groups`: the groups of queues."""
