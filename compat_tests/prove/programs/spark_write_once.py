"""Right: a query of Spark with the sink `write_once`. It ends when it has read what is there."""

from service import FOLDER, SERVERS

from oncelog.spark import write_once
from spark_it.session import spark_session

kafka = {"bootstrap.servers": SERVERS}
spark = spark_session("billing")
orders = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", SERVERS)
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 4)
    .load()
)
receipts = orders.selectExpr("key", "concat('paid: ', cast(value AS string)) AS value")
query = (
    write_once(receipts, "billing", kafka=kafka, topic="receipts", by=["key"], tasks=1)
    .option("checkpointLocation", f"{FOLDER}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
