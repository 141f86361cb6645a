"""`barnabas table`: look at tables that were loaded, merge their small files, drop what is old."""
