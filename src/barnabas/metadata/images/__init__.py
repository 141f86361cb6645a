"""The cluster's image: read from the tree, written to it, sent to brokers, and applied by them."""
