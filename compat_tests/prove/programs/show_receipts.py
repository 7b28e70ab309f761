"""Print the receipts of a database, as a command that shows what is outside Kafka."""

import os
import pathlib
import sqlite3

path = pathlib.Path(os.environ["ONCELOG_PROVE_DIR"], "receipts.db")
if path.exists():
    for row in sqlite3.connect(path).execute("SELECT number, cents FROM receipts ORDER BY number"):
        print(*row)
