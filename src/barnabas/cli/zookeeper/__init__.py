"""A ZooKeeper for development: `barnabas zookeeper start` and `stop`."""
