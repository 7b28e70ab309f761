"""Random lives of three nodes: ``python -m tests.soak.nodes COUNT [--from SEED]``.

A seed that fails is printed with its error and with what happened; `make test` lives the first hundred, shorter.
"""

from __future__ import annotations

import argparse
import sys
import traceback

from tests.sim.nodes_seeds import run_seed

STEPS = 25


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--from", type=int, default=0, dest="first")
    arguments = parser.parse_args()
    failed = []
    for seed in range(arguments.first, arguments.first + arguments.count):
        try:
            run_seed(seed, STEPS)
        except (Exception, BaseExceptionGroup):
            failed.append(seed)
            print(f"seed {seed}")
            traceback.print_exc()
    print(f"{arguments.count} lives of nodes, failed: {failed or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
