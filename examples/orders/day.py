"""A day of orders in a shop with customers in four countries. The same seed gives the same day."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BEGIN: Final = datetime(2026, 1, 31, tzinfo=UTC)
HOURS: Final = 24
PEAKS: Final = {"BR": 22, "IN": 8, "NL": 19, "PT": 13}
"""The hour (UTC) at which each country buys most."""
MOST_LATE: Final = timedelta(minutes=5)
"""How much later than its neighbours an order may come: less than the pipeline's watermark allows."""


@dataclass(frozen=True, slots=True)
class Order:
    """What an order's JSON has."""

    id: int
    customer: int
    amount: float
    at: str


def orders(count: int, countries: Mapping[int, str], seed: int = 7) -> Iterator[str]:
    """The JSON of a day's orders, nearly in order of time, and of one order of the next day, which closes the day.

    Some orders are from customers that nobody knows; `countries` has those that are known.
    """
    chance = random.Random(seed)
    unknown = max(countries) + 1
    customers = [*countries, unknown]
    times = sorted(chance.uniform(0, HOURS) for _ in range(count))
    shuffled = sorted(times, key=lambda hour: hour + chance.uniform(0, MOST_LATE / timedelta(hours=1)))
    for number, hour in enumerate(shuffled, 1):
        weights = [_liveliness(countries.get(each), hour) for each in customers]
        customer = chance.choices(customers, weights)[0]
        cents = chance.randint(500, 20_000)
        yield _json(Order(number, customer, cents / 100, _text(BEGIN + timedelta(hours=hour))))
    yield _json(Order(count + 1, unknown, 1.0, _text(BEGIN + timedelta(hours=HOURS + 2))))


def revenue(
    values: Iterator[str], countries: Mapping[int, str]
) -> dict[tuple[datetime, str | None], tuple[int, float]]:
    """Orders and revenue by hour and country, worked out without Spark: what the pipeline has to come to."""
    orders_by: Counter[tuple[datetime, str | None]] = Counter()
    amounts: defaultdict[tuple[datetime, str | None], float] = defaultdict(float)
    for value in values:
        order = Order(**json.loads(value))
        hour = datetime.fromisoformat(order.at).replace(minute=0, second=0, microsecond=0)
        key = (hour, countries.get(order.customer))
        orders_by[key] += 1
        amounts[key] += order.amount
    return {key: (orders_by[key], amounts[key]) for key in orders_by}


def _liveliness(country: str | None, hour: float) -> float:
    if country is None:
        return 0.05
    return 0.1 + (1 + math.cos((hour - PEAKS[country]) / 24 * 2 * math.pi)) ** 2


def _text(when: datetime) -> str:
    return when.isoformat(timespec="milliseconds")


def _json(order: Order) -> str:
    return json.dumps(asdict(order))
