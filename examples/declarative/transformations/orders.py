"""Orders from a topic, and what each customer spent: the first is a stream that goes on, the second is made anew."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Each order once: a run begins where the last one ended."""
    records = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", spark.conf.get("spark.orders.servers"))
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    order = "from_json(string(value), 'id BIGINT, customer INT, amount DOUBLE, at TIMESTAMP') AS order"
    return records.selectExpr(order).where("order.id IS NOT NULL").select("order.*")


@dp.materialized_view
def spent() -> DataFrame:
    """What each customer spent, over all orders that there are."""
    return spark.read.table("orders").groupBy("customer").agg({"amount": "sum"}).toDF("customer", "spent")
