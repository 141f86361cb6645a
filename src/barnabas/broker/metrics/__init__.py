"""Metrics and health over HTTP (metrics.listener): figures in Prometheus' formats, and whether the broker is ready.

The path of a request only adds to plain integers on the objects that do the work. They are read when somebody asks: a
scrape goes over the broker in steps (`scrape`), and each module of `series/` writes what it knows. Nothing of this is
imported by a broker without a metrics listener.
"""
