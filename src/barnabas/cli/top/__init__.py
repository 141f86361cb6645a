"""`barnabas top`: a live view of brokers, over their metrics listeners."""
