"""python -m spark_it load|process|audit|abort|demo …: the pipeline's command line."""

import argparse
import contextlib
import os
import pathlib
import re
import sys
from typing import Any

from compat_tests.real_kafka import RealPartMissing
from oncelog.spark.errors import SinkError
from spark_it.pipeline.config import Config
from spark_it.pipeline.errors import PipelineError
from spark_it.session import LOCAL, spark_session

# What Spark wraps an error of ours in is pages long.
OURS = re.compile(r"(?:SinkError|PipelineError): (.*)")


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0; 1 where it could not be done or the audit found faults; 2 for a wrong command line."""
    given = _parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except (PipelineError, SinkError, RealPartMissing) as failed:
        print(f"spark_it: {failed}", file=sys.stderr)
    except KeyboardInterrupt:
        print("spark_it: interrupted", file=sys.stderr)
    except Exception as failed:  # Spark's, with a Java stack: its first line, or ours within
        if os.environ.get("SPARK_IT_TRACEBACK"):
            raise
        text = str(failed)
        found = OURS.search(text)
        print(f"spark_it: {found[1] if found else text.strip().splitlines()[0]}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spark_it", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", default="pipeline.toml", help="the pipeline's configuration (TOML)")
    bare = argparse.ArgumentParser(add_help=False)
    bare.add_argument("--master", default=LOCAL, help=f"Spark's master (default {LOCAL})")
    bare.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="any of Spark's settings"
    )
    spark = argparse.ArgumentParser(add_help=False, parents=[common, bare])

    load = commands.add_parser("load", parents=[spark], help="topics to the lake")
    load.add_argument(
        "--from", dest="start", default="earliest", help="earliest, an offset, or a time (ISO 8601)"
    )
    load.add_argument("--to", dest="end", default="latest", help="latest, an offset, or a time; not included")
    load.set_defaults(run=_load)
    process = commands.add_parser("process", parents=[spark], help="events to results, each exactly once")
    process.add_argument("--once", action="store_true", help="end when what is there now is done")
    process.set_defaults(run=_process)
    audit = commands.add_parser(
        "audit", parents=[spark], help="topics against the lake, and results; 1 for faults"
    )
    audit.set_defaults(run=_audit)
    abort = commands.add_parser("abort", parents=[common], help="end what a dead query's sink left open")
    abort.add_argument("sink_id")
    abort.set_defaults(run=_abort)
    demo = commands.add_parser(
        "demo", parents=[bare], help="all of it against a broker of its own, with kills in the middle"
    )
    demo.add_argument("--events", type=int, default=20_000)
    demo.add_argument("--target", choices=("oncelog", "kafka"), default="oncelog")
    demo.add_argument(
        "--folder", type=pathlib.Path, help="where it leaves what it made (default: a temporary one)"
    )
    demo.set_defaults(run=_demo)
    return parser


def _session(given: Any) -> Any:
    if wrong := [one for one in given.conf if "=" not in one]:
        raise PipelineError(f"--conf {wrong[0]} is not KEY=VALUE")
    spark = spark_session("oncelog pipeline", given.master, dict(one.split("=", 1) for one in given.conf))
    spark.sparkContext.setLogLevel(os.environ.get("SPARK_LOG", "OFF"))
    return spark


def _load(given: Any) -> int:
    from spark_it.pipeline.kafka import Bound, Cluster
    from spark_it.pipeline.lake import Lake
    from spark_it.pipeline.load import Loader, Request

    config = Config.read(given.config)
    request = Request(config.topics, Bound.parse(given.start), Bound.parse(given.end))
    cluster = Cluster(config.librdkafka)
    cluster.topics(config.topics)  # before Spark takes its time
    spark = _session(given)
    done = Loader(spark, cluster, Lake(spark, config.lake), config.connector).run(request)
    print(f"loaded {done.offsets} offsets in {done.commits} commits ({done.lost} lost to other loaders)")
    return 0


def _process(given: Any) -> int:
    from spark_it.pipeline.kafka import Cluster
    from spark_it.pipeline.process import check_state
    from spark_it.pipeline.publish import explained, publish

    config = Config.read(given.config)
    config.need("events", "users", "results", "state")
    check_state(config)
    Cluster(config.librdkafka).topics([config.events, config.users, config.results])
    spark = _session(given)
    from spark_it.pipeline.progress import Progress

    progress = Progress()
    spark.streams.addListener(progress)
    try:
        publish(spark, config, once=given.once).awaitTermination()
    except Exception as failed:
        raise explained(config, failed) from failed
    finally:
        # The last batches are told a moment after the query has ended.
        with contextlib.suppress(Exception):
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        spark.streams.removeListener(progress)
        if pathlib.Path(config.state).is_dir():
            progress.save(pathlib.Path(config.state))
    print(f"{progress.rows} rows in {progress.batches} batches, {progress.dropped} late groups dropped")
    return 0


def _audit(given: Any) -> int:
    from spark_it.pipeline.audit import audit
    from spark_it.pipeline.kafka import Cluster
    from spark_it.pipeline.lake import Lake
    from spark_it.pipeline.publish import count_results

    config = Config.read(given.config)
    cluster = Cluster(config.librdkafka)
    cluster.topics(config.topics)
    spark = _session(given)
    report = audit(spark, cluster, Lake(spark, config.lake, make=False), config.connector, config.topics)
    for one in report:
        print(one)
    faults = sum(not one.good for one in report)
    if config.results and config.events:
        counted = count_results(spark, config)
        print(
            f"{config.results}: events counted "
            + ", ".join(f"{what}: {many}" for what, many in counted.items())
        )
        faults += counted["doubled"]
    return 1 if faults else 0


def _abort(given: Any) -> int:
    from oncelog.spark.control import Settings
    from oncelog.spark.once import abort_sink

    config = Config.read(given.config)
    tasks = abort_sink(Settings(given.sink_id, 1, (), config.librdkafka))
    print(f"nothing of sink {given.sink_id} is open any more ({tasks} tasks)")
    return 0


def _demo(given: Any) -> int:
    from spark_it.demo import demo

    spark = ["--master", given.master, *(part for one in given.conf for part in ("--conf", one))]
    return demo(main, given.target, given.events, given.folder, spark)


if __name__ == "__main__":
    sys.exit(main())
