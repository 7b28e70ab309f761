"""Faust with processing_guarantee="exactly_once", of which users report doubles."""

import faust
from service import FOLDER, SERVERS

app = faust.App(
    "billing",
    broker=f"kafka://{SERVERS}",
    processing_guarantee="exactly_once",
    value_serializer="raw",
    key_serializer="raw",
    datadir=FOLDER,
    topic_disable_leader=True,
    web_enabled=False,
    broker_session_timeout=6,
    broker_heartbeat_interval=0.1,
    broker_commit_interval=0.05,
    consumer_auto_offset_reset="earliest",
    stream_wait_empty=False,
)
orders = app.topic("orders", key_type=bytes, value_type=bytes)
receipts = app.topic("receipts", key_type=bytes, value_type=bytes)


@app.agent(orders)
async def bill(stream):
    async for key, order in stream.items():
        await receipts.send(key=key, value=b"paid: " + order)


app.main()
