"""Plain Parquet tables: files in a folder, and a log beside them."""
