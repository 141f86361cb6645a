"""Tables that know how far a topic has come into them: plain Parquet, Delta Lake and Apache Iceberg.

`opening.open_table` gives one; `table.Table` says what all of them can do.
"""
