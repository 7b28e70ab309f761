"""``python -m oncelog`` is ``oncelog``."""

import sys

from oncelog.broker.command.cli import main

sys.exit(main())
