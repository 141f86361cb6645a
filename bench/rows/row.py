"""What a row of the comparison is: a name for the command line, a title for the table, metrics, and how to measure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from bench.brokers import BROKERS
from bench.results import Comparison

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.lab import Lab, Samples, Scale
    from bench.results import Metric


class Row(ABC):
    """One row, which may yield several metrics."""

    name: str
    title: str

    @abstractmethod
    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """What it measures."""

    @abstractmethod
    def measure(self, lab: Lab) -> Samples:
        """Measure both brokers: per broker's name a list of repetitions, each with a value per metric's key."""

    def compare(self, lab: Lab) -> list[Comparison]:
        """Measure, and set the two side by side; a metric that no repetition has is left out."""
        samples = self.measure(lab)
        compared = []
        for metric in self.metrics(lab.scale):
            kafka, barnabas = (
                tuple(values[metric.key] for values in samples[name] if metric.key in values)
                for name in ("Kafka", "Barnabas")
            )
            if kafka and barnabas:
                compared.append(Comparison(self.title, metric, kafka, barnabas))
        return compared


class TurnRow(Row):
    """A row whose repetitions are turns of the two warm brokers."""

    kinds: ClassVar[tuple[type[Broker], ...]] = BROKERS

    @abstractmethod
    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """One turn: a value per metric's key."""

    def measure(self, lab: Lab) -> Samples:
        """Alternate."""
        return lab.alternate(self.name, lambda broker: self.once(lab, broker), self.metrics(lab.scale), self.kinds)
