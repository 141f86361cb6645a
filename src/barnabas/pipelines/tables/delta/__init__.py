"""Delta Lake tables, by deltalake and without a JVM."""
