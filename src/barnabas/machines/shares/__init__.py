"""Share groups' data: the share coordinator, which keeps their state, and the share partition, which changes it."""
