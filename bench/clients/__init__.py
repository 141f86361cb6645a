"""The programs that load a broker: Java's perf tool, librdkafka, and plain sockets where those would be the limit."""
