"""Loads topics into tables, exactly once: the offsets that a table holds say where to go on.

    from barnabas.pipelines import load

    load("orders", "lake/orders", format="delta", decode="json")

One round of a load: look how far the table is and how far the topic; cut what lies between into ranges; one task of
Spark for each range reads, decodes and writes Parquet, all in Arrow (`task`); the driver commits the files and the
ranges to the table at once (`job`). Whatever dies on the way, the next round begins where the table stands.

Tasks run in Spark's workers, which load `task` and not what only the driver needs: so nothing is imported here.
"""
