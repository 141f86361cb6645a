"""`barnabas metadata`: carry a cluster's metadata to a file or a ZooKeeper, and back."""
