"""What the benchmarks of learning share: commands of `tfod`, training of a sample, its metrics."""

import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import own_process

from object_detection.config.reader import read_pipeline
from object_detection.dataset_tools import shapes

SAMPLES = pathlib.Path(__file__).resolve().parents[1] / 'object_detection' / 'samples' / 'configs'
BOX_AP = 'DetectionBoxes_Precision/mAP@.50IOU'
_SCHEDULE = 'train_config.optimizer.{}.learning_rate.cosine_decay_learning_rate'


class Trained(NamedTuple):
    """A sample after its training.

    Attributes:
      metrics: of the evaluation of the last checkpoint.
      seconds: of the training, its start included.
      cpu_seconds: processor seconds of the training.
      steps: number of training steps.
    """

    metrics: dict[str, float]
    seconds: float
    cpu_seconds: float
    steps: int


def tfod(*words: object, max_minutes: float | None = None) -> None:
    """Prints and runs a `tfod` command; after `max_minutes` it is told to save and end."""
    argv = [str(word) for word in words]
    shown = argv if len(argv) < 20 else [*argv[:20], '...']
    print('$ tfod', ' '.join(shown), flush=True)
    process = subprocess.Popen([sys.executable, '-m', 'object_detection.cli.main', *argv])
    try:
        process.wait(timeout=max_minutes and 60 * max_minutes)
    except subprocess.TimeoutExpired:
        print(f'stopped after {max_minutes:g} minutes', flush=True)
        process.terminate()
        process.wait()
    else:
        if process.returncode:
            sys.exit(f'the command above failed (exit {process.returncode})')


def make_shapes(
    folder: pathlib.Path, *, num_train: int, num_val: int, seed: int, masks: bool = False
) -> None:
    """Makes the generated shapes of `tfod demo` and converts them to records in `folder`."""
    data = folder / 'shapes'
    shapes.write_shapes(data, num_train=num_train, num_val=num_val, seed=seed)
    for part, shards in (('train', 4), ('val', 1)):
        tfod(
            *('convert', 'coco', '--images', data / part, '--shards', shards, '--keypoints'),
            *('--annotations', data / f'instances_{part}.json', '--output', folder / part),
            *['--masks'] * masks,
        )


def train(
    sample: str,
    folder: pathlib.Path,
    *,
    name: str = '',
    seed: int = 0,
    num_steps: int = 0,
    max_minutes: float | None = None,
    change: Callable[[str], str] | None = None,
) -> Trained:
    """Trains a sample config on the records in `folder`, and evaluates what it has learnt.

    Args:
      sample: name of the config without its ending; its schedule is a cosine.
      folder: holds the train and val records and their label map.
      name: of a folder within `folder`, which gets pipeline.config and model/; if empty, `folder`.
      seed: of weights and data.
      num_steps: training steps; 0 takes those of the sample.
      max_minutes: after these the training saves and ends.
      change: returns the text of the config that is trained in place of the sample's.
    """
    config, model = folder / name / 'pipeline.config', folder / name / 'model'
    config.parent.mkdir(exist_ok=True)
    text = (SAMPLES / f'{sample}.config').read_text()
    text = text.replace('PATH_TO_BE_CONFIGURED', folder.as_posix())
    config.write_text(change(text) if change else text)
    optimizer = read_pipeline(str(config)).train_config.optimizer
    schedule = _SCHEDULE.format(optimizer.WhichOneof('optimizer'))
    shortened = ('--num_train_steps', num_steps, '--set', f'{schedule}.total_steps={num_steps}')
    steps = shortened if num_steps else ()
    start, before = time.monotonic(), own_process.children_cpu_seconds()
    tfod(
        *('train', '--config', config, '--model_dir', model, '--seed', seed, *steps),
        max_minutes=max_minutes,
    )
    seconds = time.monotonic() - start
    cpu_seconds = own_process.children_cpu_seconds() - before
    tfod(
        *('eval', '--config', config, '--checkpoint_dir', model, '--model_dir', model),
        '--run_once',
    )
    (path,) = sorted((model / 'eval').glob('**/metrics.json'))[:1]
    last = (model / 'train' / 'history.jsonl').read_text().splitlines()[-1]
    return Trained(json.loads(path.read_text()), seconds, cpu_seconds, json.loads(last)['step'])


def finish(trained: Trained, box_ap: float) -> None:
    """Prints what a training has reached, and exits with 1 if that is less than `box_ap`."""
    reached = trained.metrics[BOX_AP]
    for name, value in sorted(trained.metrics.items()):
        if '.50IOU' in name:
            print(f'{name} {value:.3f}')
    print(
        f'box AP@.50 {reached:.3f} after {trained.steps} steps, {trained.seconds / 60:.1f} minutes '
        f'of training, {trained.cpu_seconds / 60:.1f} minutes of processor time'
    )
    if reached < box_ap:
        sys.exit(f'to reach: box AP@.50 {box_ap:g}')
