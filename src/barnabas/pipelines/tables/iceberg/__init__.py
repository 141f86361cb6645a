"""Apache Iceberg tables, by pyiceberg and without a JVM."""
