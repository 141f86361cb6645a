"""Who clients and brokers are: the mechanisms that listeners offer, and where they find what they need."""
