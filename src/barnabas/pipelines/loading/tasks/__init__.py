"""The tasks of a load: what each does in a Python worker of Spark, and how the driver runs them and adds them up."""
