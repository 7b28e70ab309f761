"""Print the receipts of a database, as a command that shows what is outside Kafka: show_receipts.py FOLDER"""

import pathlib
import sqlite3
import sys

path = pathlib.Path(sys.argv[1], "receipts.db")
if path.exists():
    for row in sqlite3.connect(path).execute("SELECT number, cents FROM receipts ORDER BY number"):
        print(*row)
