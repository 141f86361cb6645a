"""What the console asks brokers: connections in a user's name, snapshots of the cluster, and what is wrong with it."""
