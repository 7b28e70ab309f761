"""Run by the newer PySpark's interpreter: goes on from a checkpoint, and prints what it reads as JSON.

python -m spark_it.tests.newer BOOTSTRAP TOPIC CHECKPOINT
"""

import json
import sys

from spark_it.session import spark_session
from spark_it.tests.queries import Query, kafka_stream


def main(bootstrap: str, topic: str, checkpoint: str) -> None:
    spark = spark_session("newer", conf={"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("OFF")
    query = Query(kafka_stream(spark, bootstrap, subscribe=topic), checkpoint, availableNow=True).end()
    print(json.dumps({"version": spark.version, "rows": query.rows, "batches": sorted(query.batches)}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
