"""`barnabas pipeline`: pipelines as files, that are checked, run on Spark and watched."""
