"""Measures what several replicas, or processes, cost over one with the same global batch.

    python benchmarks/scaling_workers.py
    python benchmarks/scaling_workers.py --quick --kind processes --count 2

All run on the same cores of this machine: replicas are logical CPU devices of one process, and
processes are workers on loopback. Each point is measured in processes of its own. "CPU s" is of all
processes, for a step; where others use the machine it tells more than the time. "overhead" is the
CPU time over that of one replica, and "a worker" that part of each further one. Reduction is the
sum of gradients of the model's size alone; input is the taking of a step's batches, which lie in
memory, alone.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import click
import measure
import own_process

MODEL = 'mask_rcnn_resnet18_fpn_shapes'
KINDS = ('replicas', 'processes')
COUNTS = (1, 2, 4)
_COLUMNS = (
    ('kind', 'kind', '{}'),
    ('count', 'count', '{}'),
    ('seconds', 'step s', '{:.3f}'),
    ('cpu_seconds', 'CPU s', '{:.3f}'),
    ('overhead', 'overhead %', '{:.1f}'),
    ('per_worker', 'a worker, CPU ms', '{:.1f}'),
    ('reduction_seconds', 'reduction ms', '{:.1f}'),
    ('reduction_cpu_seconds', 'CPU ms', '{:.1f}'),
    ('input_seconds', 'input ms', '{:.2f}'),
    ('input_cpu_seconds', 'CPU ms', '{:.2f}'),
    ('megabytes', 'gradients MB', '{:.1f}'),
)
_IN_MILLISECONDS = (
    'per_worker',
    *(f'{p}_{k}' for p in ('reduction', 'input') for k in ('seconds', 'cpu_seconds')),
)


@dataclasses.dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes:
      kind: of `KINDS`.
      count: replicas or processes.
      batch_size: of all of them together.
      side: of the images.
      steps: timed ones.
    """

    kind: str
    count: int
    batch_size: int = 8
    side: int = 256
    steps: int = 8


@click.command(help='Measures the cost of several replicas and processes over one.')
@click.option('--kind', 'kinds', multiple=True, type=click.Choice(KINDS), help='Repeat.')
@click.option('--count', 'counts', multiple=True, type=int, help='Repeat; 1 is always measured.')
@click.option('--batch_size', default=8, show_default=True, help='Of all together.')
@click.option('--side', default=256, show_default=True, help='Of the images, pixels.')
@click.option('--steps', default=8, show_default=True, help='Timed steps.')
@click.option('--runs', default=2, show_default=True, help='Of which the cheapest counts.')
@click.option('--quick', is_flag=True, help='Little work; shows that all runs, not what it costs.')
@click.option(
    '--json',
    'path',
    type=click.Path(path_type=pathlib.Path),
    default=measure.RESULTS / 'scaling_workers.json',
    help='Where to write the results, a list of objects.',
)
@click.option('--here', hidden=True, help='JSON of a point, whose part this process measures.')
def main(kinds, counts, batch_size, side, steps, runs, quick, path, here):
    if here:
        click.echo(json.dumps(measure_here(Point(**json.loads(here)))))
        return
    if quick:
        batch_size, side, steps, runs = max(counts or COUNTS), 64, 2, 1
    points = [Point('replicas', 1, batch_size, side, steps)]
    for kind in kinds or KINDS:
        points += [
            Point(kind, count, batch_size, side, steps) for count in counts or COUNTS if count > 1
        ]
    # In turns, so that what else the machine does meets all of them.
    measured = [[_measured(point) for point in points] for _ in range(runs)]
    results = [
        min(several, key=lambda r: r['cpu_seconds']) for several in zip(*measured, strict=True)
    ]
    results = with_overhead(results)
    click.echo('\n'.join(own_process.table(_COLUMNS, [_in_milliseconds(r) for r in results])))
    measure.write(results, path)


def with_overhead(results: Sequence[dict]) -> list[dict]:
    """Adds what each result costs over the first, which is of one replica."""
    one = results[0]['cpu_seconds']
    return [
        result
        | {
            'overhead': 100 * (result['cpu_seconds'] / one - 1),
            'per_worker': (result['cpu_seconds'] - one) / max(1, result['count'] - 1),
        }
        for result in results
    ]


def measure_here(point: Point) -> dict:
    """Measures in this process, which is one of those of a point of processes."""
    strategy = _strategy(point)
    import tensorflow as tf

    with strategy.scope():
        step, iterator = _build(strategy, point)
        gradients = [tf.ones(v.shape) for v in step.optimizer.variables.values()]

    def run_step() -> None:
        {name: value.numpy() for name, value in step(next(iterator)).items()}

    @tf.function(autograph=False)
    def reduce() -> tf.Tensor:
        def one() -> tf.Tensor:
            sums = step._reduction(gradients)
            return tf.add_n([tf.reduce_sum(each) for each in sums])

        return tf.stack(strategy.experimental_local_results(strategy.run(one)))

    parts = {
        '': run_step,
        'reduction_': lambda: reduce().numpy(),
        'input_': lambda: tf.nest.map_structure(
            lambda value: value, next(iterator), expand_composites=True
        ),
    }
    result = {'megabytes': sum(4 * int(tf.size(g)) for g in gradients) / 1e6}
    for prefix, run in parts.items():
        # Parts that are short are measured more often.
        result |= _timed(run, point.steps * (5 if prefix else 1), prefix)
    return result


def _timed(run: Callable[[], None], count: int, prefix: str) -> dict[str, float]:
    """Median seconds of a run, and mean CPU seconds."""
    for _ in range(2):
        run()
    seconds, before = [], own_process.cpu_seconds()
    for _ in range(count):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    cpu_seconds = (own_process.cpu_seconds() - before) / count
    return {f'{prefix}seconds': statistics.median(seconds), f'{prefix}cpu_seconds': cpu_seconds}


def _strategy(point: Point):
    from object_detection.system import tensorflow_setup

    tensorflow_setup.keep_freed_memory()
    tensorflow_setup.import_tensorflow()
    import tensorflow as tf

    from object_detection.config.job_options import TrainOptions
    from object_detection.training.distribution import strategies, strategy_choice

    if point.count == 1:
        return strategies.build()
    if point.kind == 'processes':
        return strategies.build(strategy_choice.choose(TrainOptions()))
    (device,) = tf.config.list_physical_devices('CPU')
    parts = [tf.config.LogicalDeviceConfiguration()] * point.count
    tf.config.set_logical_device_configuration(device, parts)
    return strategies.build(strategy_choice.Choice(strategy_choice.MIRRORED))


def _build(strategy, point: Point):
    """The step of the small recipe, and the iterator of its batches, in the strategy's scope."""
    import tensorflow as tf

    from object_detection.benchmarking import work
    from object_detection.config.reader import read_pipeline
    from object_detection.training import setup

    pipeline = read_pipeline(measure.find_config(MODEL))
    pipeline.train_config.batch_size = point.batch_size
    detector = work.build_detector(pipeline, 'float32', is_training=True)
    crop_size = pipeline.model.faster_rcnn.groundtruth_mask_crop_size
    size = (point.side, point.side)

    def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        own = context.get_per_replica_batch_size(point.batch_size)
        arrays = work.batch(own, size, detector.num_classes, crop_size)
        return tf.data.Dataset.from_tensors(arrays).cache().repeat().prefetch(2)

    iterator = iter(strategy.distribute_datasets_from_function(batches))
    return setup.build_step(pipeline.train_config, detector, iterator.element_spec, 0), iterator


def _measure(point: Point) -> dict:
    """Runs the processes of a point; CPU times are added up."""
    command = [sys.executable, __file__, '--here', json.dumps(dataclasses.asdict(point))]
    environments = [{}]
    if point.kind == 'processes':
        from object_detection.training.distribution.launcher import Launch

        environments = Launch(command, point.count).environments()
    variables = {'TF_CPP_MIN_LOG_LEVEL': '3', **os.environ}
    running = [
        subprocess.Popen(command, env=variables | own, stdout=subprocess.PIPE, text=True)
        for own in environments
    ]
    told = [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]
    return {
        'kind': point.kind,
        'count': point.count,
        **{key: (sum if 'cpu' in key else max)(each[key] for each in told) for key in told[0]},
    }


def _measured(point: Point) -> dict:
    """Measures, and tells it at once: all points take minutes."""
    result = _measure(point)
    click.echo(
        f'{point.count} {point.kind}: {result["seconds"]:.3f} s, '
        f'{result["cpu_seconds"]:.3f} CPU s a step',
        err=True,
    )
    return result


def _in_milliseconds(result: dict) -> dict:
    return result | {key: 1000 * result[key] for key in _IN_MILLISECONDS}


if __name__ == '__main__':
    main()
