"""Small files at an address, by Hadoop's access to files in Spark's JVM: what Spark wrote there, it finds there too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class HadoopFolder:
    """A folder at an address that Spark can read. Its methods raise what Java does where that is not so."""

    spark: SparkSession
    address: str

    def text(self, name: str) -> str | None:
        """What a file below has; None if it is not there."""
        files, path = self._found(name)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def names(self, folder: str) -> list[str]:
        """The names in a folder below; none if it is not there."""
        files, path = self._found(folder)
        return [each.getPath().getName() for each in files.listStatus(path)] if files.exists(path) else []

    @property
    def _jvm(self) -> Any:
        return self.spark.sparkContext._jvm

    def _found(self, name: str) -> tuple[Any, Any]:
        """The file system, and the path in it."""
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.address.rstrip('/')}/{name}")
        return path.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf()), path
