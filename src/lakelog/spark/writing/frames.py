"""`lakelog.spark.write`: writes a DataFrame once for a micro-batch, inside `foreachBatch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelog.model.arguments import check_text, check_whole
from lakelog.model.names import check_name
from lakelog.model.write import WriteKind, check_write_id
from lakelog.spark.session import connection_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write(
    df: DataFrame, topic: str, *, query: str, batch: int, url: str | None = None, token: str | None = None
) -> None:
    """Write the rows of a micro-batch to a topic, once, also if Spark runs the micro-batch again.

    It is for `foreachBatch`: `lambda df, batch: write(df, "orders", query="copy-orders", batch=batch)`. The newest
    write of a query is remembered for a year, older ones for 30 days.

    Args:
        df: The rows, with the columns of a message. See `format("lakelog")`.
        topic: The topic, which must exist.
        query: A name for the query and this write, at most 490 bytes. It must not change while the checkpoint is in
            use, and two queries, or two writes of one query into the topic, need different names.
        batch: The number of the micro-batch, from 0, as `foreachBatch` gives it.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        InvalidRequest: If an argument is not valid, or the columns are not those of a message.
        Conflict: If the micro-batch was written before with another number of messages. Nothing is added then.
    """
    check_name("topic", topic)
    check_text("query", query)
    check_whole("batch", batch, 0)
    write_id = check_write_id(f"{query}/{batch}", WriteKind.STREAM)
    connection = connection_to(url, token, df.sparkSession)
    options = {**connection.options, "topic": topic, "writeId": write_id, "writeKind": WriteKind.STREAM.value}
    df.write.format("lakelog").mode("append").options(**options).save()
