"""Where the metadata tree is kept: a SQLite file shared by the brokers of one host, or a ZooKeeper."""
