"""Orders of a topic as a table, their totals as a view, and large orders as messages of another topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Return all orders. A run adds those that are new."""
    messages = spark.readStream.format("lakelog").options(topic="orders", start="earliest").load()
    order = F.from_json(F.col("value").cast("string"), "id STRING, customer STRING, total DOUBLE")
    return messages.select(order.alias("order")).select("order.*")


@dp.materialized_view
def totals() -> DataFrame:
    """Return the sum of the orders of each customer."""
    return spark.read.table("orders").groupBy("customer").agg(F.sum("total").alias("total"))


dp.create_sink("large_orders", "lakelog", {"topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    """Return the messages for new orders of 100 and more."""
    rows = spark.readStream.table("orders").where("total >= 100")
    value = F.encode(F.to_json(F.struct("id", "customer", "total")), "utf-8")
    return rows.select(F.encode("customer", "utf-8").alias("key"), value.alias("value"))
