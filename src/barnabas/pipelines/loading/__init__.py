"""Loads topics into tables, exactly once: the offsets that a table holds say where to go on.

    from barnabas.pipelines import load

    load("orders", "lake/orders", format="delta", decode="json")

One round of a load (`job`): read where the table and the topic are (`position`); cut the offsets between them into
pieces (`plan`); one task of Spark for each piece reads, decodes and writes Parquet, all in Arrow (`tasks`); the driver
commits the files and the ranges to the table at once (`commits`). Whatever dies on the way, the next round begins with
the offsets that the table holds.

Tasks run in Spark's workers, which load `tasks.task` and not what only the driver needs: so nothing is imported here.
"""
