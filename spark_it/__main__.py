"""python -m spark_it load|process|audit|abort|demo …: the pipeline's command line."""

import argparse
import contextlib
import os
import pathlib
import re
import sys
from typing import Any

from oncelog.spark.errors import SinkError
from spark_it.pipeline.config import Config
from spark_it.pipeline.errors import PipelineError
from spark_it.session import LOCAL, spark_session
from tests.common.jars import RealPartMissing

# Spark wraps an error of this project in pages of text.
OWN_ERROR = re.compile(r"(?:SinkError|PipelineError): (.*)")


def main(arguments: list[str] | None = None) -> int:
    """Run a command. The exit code is 0; 1 after an error or if the audit found faults; 2 for a wrong command line."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (PipelineError, SinkError, RealPartMissing) as error:
        print(f"spark_it: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("spark_it: interrupted", file=sys.stderr)
    except (
        Exception
    ) as error:  # Spark's, with a Java stack: print only its first line, or the own error inside it
        if os.environ.get("SPARK_IT_TRACEBACK"):
            raise
        text = str(error)
        found = OWN_ERROR.search(text)
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

    load = commands.add_parser("load", parents=[spark], help="load topics into the lake")
    load.add_argument(
        "--from", dest="start", default="earliest", help="earliest, an offset, or a time (ISO 8601)"
    )
    load.add_argument("--to", dest="end", default="latest", help="latest, an offset, or a time; not included")
    load.set_defaults(run=_load)
    process = commands.add_parser(
        "process", parents=[spark], help="process events into results, each exactly once"
    )
    process.add_argument("--once", action="store_true", help="end after the events that are there now")
    process.set_defaults(run=_process)
    audit = commands.add_parser(
        "audit", parents=[spark], help="compare topics, lake and results; exit code 1 for faults"
    )
    audit.set_defaults(run=_audit)
    abort = commands.add_parser(
        "abort", parents=[common], help="end the open transactions of a dead query's sink"
    )
    abort.add_argument("sink_id")
    abort.set_defaults(run=_abort)
    demo = commands.add_parser(
        "demo", parents=[bare], help="the whole pipeline with its own broker, which is killed in the middle"
    )
    demo.add_argument("--events", type=int, default=20_000)
    demo.add_argument("--target", choices=("oncelog", "kafka"), default="oncelog")
    demo.add_argument(
        "--folder", type=pathlib.Path, help="the folder for all results (default: a temporary one)"
    )
    demo.set_defaults(run=_demo)
    return parser


def _session(options: Any) -> Any:
    if wrong := [one for one in options.conf if "=" not in one]:
        raise PipelineError(f"--conf {wrong[0]} is not KEY=VALUE")
    spark = spark_session("oncelog pipeline", options.master, dict(one.split("=", 1) for one in options.conf))
    spark.sparkContext.setLogLevel(os.environ.get("SPARK_LOG", "OFF"))
    return spark


def _load(options: Any) -> int:
    from spark_it.pipeline.kafka import Bound, Cluster
    from spark_it.pipeline.lake import Lake
    from spark_it.pipeline.load import Loader, Request

    config = Config.read(options.config)
    request = Request(config.topics, Bound.parse(options.start), Bound.parse(options.end))
    cluster = Cluster(config.librdkafka)
    cluster.topics(config.topics)  # fails before Spark starts, which takes long
    spark = _session(options)
    done = Loader(spark, cluster, Lake(spark, config.lake), config.connector).run(request)
    print(f"loaded {done.offsets} offsets in {done.commits} commits ({done.lost} lost to other loaders)")
    return 0


def _process(options: Any) -> int:
    from spark_it.pipeline.kafka import Cluster
    from spark_it.pipeline.process import check_state
    from spark_it.pipeline.publish import explain, publish

    config = Config.read(options.config)
    config.require("events", "users", "results", "state")
    check_state(config)
    Cluster(config.librdkafka).topics([config.events, config.users, config.results])
    spark = _session(options)
    from spark_it.pipeline.progress import Progress

    progress = Progress()
    spark.streams.addListener(progress)
    try:
        publish(spark, config, once=options.once).awaitTermination()
    except Exception as error:
        raise explain(config, error) from error
    finally:
        # Spark reports the last batches a moment after the query has ended.
        with contextlib.suppress(Exception):
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        spark.streams.removeListener(progress)
        if pathlib.Path(config.state).is_dir():
            progress.save(pathlib.Path(config.state))
    print(f"{progress.rows} rows in {progress.batches} batches, {progress.dropped} late groups dropped")
    return 0


def _audit(options: Any) -> int:
    from spark_it.pipeline.audit import audit
    from spark_it.pipeline.kafka import Cluster
    from spark_it.pipeline.lake import Lake
    from spark_it.pipeline.publish import count_results

    config = Config.read(options.config)
    cluster = Cluster(config.librdkafka)
    cluster.topics(config.topics)
    spark = _session(options)
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


def _abort(options: Any) -> int:
    from oncelog.spark.control import Settings
    from oncelog.spark.once import abort_sink

    config = Config.read(options.config)
    tasks = abort_sink(Settings(options.sink_id, 1, (), config.librdkafka))
    print(f"nothing of sink {options.sink_id} is open any more ({tasks} tasks)")
    return 0


def _demo(options: Any) -> int:
    from spark_it.demo import demo

    spark = ["--master", options.master, *(part for one in options.conf for part in ("--conf", one))]
    return demo(main, options.target, options.events, options.folder, spark)


if __name__ == "__main__":
    sys.exit(main())
