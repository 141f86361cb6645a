"""What the Fetch handler is made of: one partition read, leases on files until they are sent, followers batched."""
