"""Whether pipelines can run, found without Spark and without a broker. Pure, but for a look at files that are named.

`pipeline.problems_of` finds everything that is wrong at once, with the place where it is written and the nearest name
that would be right.
"""
