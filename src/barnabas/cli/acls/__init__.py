"""`barnabas acls`: kafka-acls, which shows and changes who may do what."""
