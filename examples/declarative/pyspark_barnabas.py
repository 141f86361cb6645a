"""How `spark-pipelines` gets to know the source: Spark looks for modules of such names on the Python path.

A definition could register the source by itself, and everything would work but the end: the client of PySpark 4.3.0
does not take what such a source reports, and fails after the run has completed (UNKNOWN_RESPONSE, SPARK-59135).
"""

from barnabas.pipelines.source import BarnabasSource as DefaultSource

__all__ = ["DefaultSource"]
