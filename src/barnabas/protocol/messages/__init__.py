"""Messages that are packed and unpacked by hand, one file per API, and those that only brokers send."""
