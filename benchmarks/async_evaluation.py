"""Measures what an evaluation in another process (--async_eval) costs the steps of a training.

    python benchmarks/async_evaluation.py
    python benchmarks/async_evaluation.py --config NAME --steps 300 --interval 60 --train_core 0 \
        --eval_core 1

One training on synthetic data, bound to one core with one thread for operations, evaluates in a
process on another core now and then. Steps during which that process works are compared with those
in between, in the same run, by the medians of their seconds and processor seconds. "hand-over" is
what a step with a snapshot costs more: a checkpoint that is saved, and its links.

Medians leave out single late steps. So the mean over whole intervals, of all that happens in them,
is compared with that of another training, which saves as often and does not evaluate.
"""

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import time

import measure
import own_process


class Steps:
    """A display that takes the time of each step, and whether the evaluation works meanwhile."""

    def __init__(self, warmup: int):
        self._warmup = warmup
        self.is_busy = False
        self.rows: list[tuple[int, bool, float, float]] = []

    def start(self, step: int, num_steps: int, batch_size: int) -> None:
        self._last = self._now()

    def update(self, record: object) -> None:
        pass

    def log(self, record) -> None:
        now, was_busy = self._now(), self.is_busy
        if record.step > self._warmup:
            self.rows.append(
                (record.step, was_busy, *(b - a for a, b in zip(self._last, now, strict=True)))
            )
        self._last = now

    def close(self) -> None:
        pass

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), own_process.cpu_seconds()


class Watch(logging.Handler):
    """Tells from the log whether the evaluation works."""

    def __init__(self, steps: Steps):
        super().__init__()
        self._steps = steps
        self.evaluations: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if 'is started' in text or '] evaluating ' in text:
            self._steps.is_busy = True
        elif '] evaluation' in text and ' at step ' in text:
            self._steps.is_busy = False
            self.evaluations.append(text.splitlines()[0])


def run(arguments: argparse.Namespace) -> dict:
    os.sched_setaffinity(0, [arguments.train_core])
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    from object_detection.config import synthetic_data
    from object_detection.config.reader import read_pipeline
    from object_detection.training.loop import train
    from object_detection.training.monitoring.run_types import Intervals

    pipeline = read_pipeline(measure.find_config(arguments.config), settings=arguments.set)
    pipeline = synthetic_data.without_files(pipeline)
    pipeline.train_config.batch_size = arguments.batch_size
    pipeline.eval_config.batch_size = 1
    pipeline.eval_config.eval_samples = arguments.eval_samples
    if not arguments.saves_only:
        pipeline.eval_config.async_evaluation.cpu_affinity = str(arguments.eval_core)
    steps = Steps(arguments.warmup)
    watch = Watch(steps)
    logger = logging.getLogger('object_detection')
    logger.setLevel(logging.INFO)
    logger.addHandler(watch)
    with tempfile.TemporaryDirectory() as directory:
        train(
            pipeline,
            directory,
            num_steps=arguments.steps,
            intervals=Intervals(
                log=1,
                checkpoint=arguments.interval,
                evaluation=0 if arguments.saves_only else arguments.interval,
                call=1,
            ),
            record_summaries=False,
            seed=1,
            progress=steps,
        )
    means = mean_of_intervals(steps.rows, arguments.interval)
    if arguments.saves_only:
        return means
    compared = compare(steps.rows, arguments.interval)
    return compared | means | {'evaluations': watch.evaluations}


def mean_of_intervals(rows: list[tuple[int, bool, float, float]], interval: int) -> dict:
    """Means of all steps between the first and the last save after the warm-up."""
    # What is saved after a step is part of the next one.
    saved = [step - 1 for step, *_ in rows if not (step - 1) % interval]
    whole = [row for row in rows if saved and saved[0] < row[0] <= saved[-1]]
    if not whole:
        raise SystemExit('--steps, --interval: expected at least two saves after the warm-up.')
    return {
        'intervals': len(whole) // interval,
        'mean_seconds': statistics.fmean(row[2] for row in whole),
        'mean_cpu_seconds': statistics.fmean(row[3] for row in whole),
    }


def compare(rows: list[tuple[int, bool, float, float]], interval: int) -> dict:
    # What is saved after a step is part of the next one.
    plain = [row for row in rows if (row[0] - 1) % interval]
    handed = [row[2] for row in rows if not (row[0] - 1) % interval]
    idle, busy = ([row for row in plain if row[1] is is_busy] for is_busy in (False, True))
    result = {'idle_steps': len(idle), 'busy_steps': len(busy)}
    for name, column in (('seconds', 2), ('cpu_seconds', 3)):
        times = [statistics.median(row[column] for row in part) for part in (idle, busy)]
        result[f'idle_{name}'], result[f'busy_{name}'] = times
        result[f'cost_{name}'] = times[1] / times[0] - 1
    result['hand_over'] = statistics.median(handed) - result['busy_seconds'] if handed else 0.0
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--config', default='mask_rcnn_resnet18_fpn_shapes')
    parser.add_argument('--set', action='append', default=[])
    parser.add_argument('--batch_size', type=int, default=1)
    parser.add_argument('--steps', type=int, default=300)
    parser.add_argument('--warmup', type=int, default=10)
    parser.add_argument('--interval', type=int, default=60, help='steps between two evaluations')
    parser.add_argument('--eval_samples', type=int, default=40)
    parser.add_argument('--train_core', type=int, default=0)
    parser.add_argument('--eval_core', type=int, default=1)
    parser.add_argument(
        '--saves_only', action='store_true', help='only the training that does not evaluate'
    )
    arguments = parser.parse_args()
    if arguments.saves_only:
        print(json.dumps(run(arguments)))
        return
    # First, so that files which both read are in memory for both.
    alone = own_process.run_json(__file__, [*sys.argv[1:], '--saves_only'])
    result = run(arguments)
    show(result | {f'alone_{key}': value for key, value in alone.items()})


def show(result: dict) -> None:
    columns = [
        ('part', 'steps', '{}'),
        ('count', 'number', '{}'),
        ('seconds', 'ms a step', '{:.1f}'),
        ('cpu_seconds', 'CPU ms a step', '{:.1f}'),
    ]
    rows = [
        {
            'part': label,
            'count': result[f'{part}_steps'],
            'seconds': 1e3 * result[f'{part}_seconds'],
            'cpu_seconds': 1e3 * result[f'{part}_cpu_seconds'],
        }
        for part, label in (('idle', 'without'), ('busy', 'with evaluation'))
    ]
    print('\n'.join(own_process.table(columns, rows)))
    print(
        f'cost: {result["cost_seconds"]:.1%} of the time, {result["cost_cpu_seconds"]:.1%} of the '
        f'processor time; hand-over {1e3 * result["hand_over"]:.0f} ms'
    )
    cost = result['mean_seconds'] / result['alone_mean_seconds'] - 1
    print(
        f'mean of {result["intervals"]} whole intervals: {1e3 * result["mean_seconds"]:.1f} ms a '
        f'step, CPU {1e3 * result["mean_cpu_seconds"]:.1f} ms; of a training that saves as often '
        f'and does not evaluate: {1e3 * result["alone_mean_seconds"]:.1f} ms, CPU '
        f'{1e3 * result["alone_mean_cpu_seconds"]:.1f} ms; cost {cost:.1%}'
    )
    print(json.dumps(result))


if __name__ == '__main__':
    main()
