"""``python -m oncelog`` is ``oncelog``."""

import sys

from oncelog.broker.cli import main

sys.exit(main())
