"""``python -m broker`` is ``oncelog``."""

import sys

from broker.cli import main

sys.exit(main())
