"""`tfod demo`: runs all steps on generated data, with the commands that a user would type."""

import contextlib
import datetime
import importlib.metadata
import importlib.resources
import json
import math
import pathlib
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import click

from object_detection.cli.common import option_flags
from object_detection.system import tensorflow_setup
from object_detection.training.distribution.worker_processes import run_and_wait

BOX_AP_TO_REACH = 0.80
MASK_AP_TO_REACH = 0.75
SSD_BOX_AP_TO_REACH = 0.75
_BOX_AP = 'DetectionBoxes_Precision/mAP@.50IOU'
_MASK_AP = 'DetectionMasks_Precision/mAP@.50IOU'


class Model(NamedTuple):
    """A sample that the demo can train.

    Attributes:
      name: in texts.
      config: name of the sample config.
      to_reach: name of a metric -> the least value.
      has_masks: whether it detects masks.
    """

    name: str
    config: str
    to_reach: dict[str, float]
    has_masks: bool


_DEFAULT_MODEL = 'mask_rcnn'
MODELS = {
    _DEFAULT_MODEL: Model(
        'Mask R-CNN',
        'mask_rcnn_resnet18_fpn_shapes.config',
        {_BOX_AP: BOX_AP_TO_REACH, _MASK_AP: MASK_AP_TO_REACH},
        has_masks=True,
    ),
    'ssd': Model(
        'SSD',
        'ssd_mobilenet_v2_fpnlite_shapes.config',
        {_BOX_AP: SSD_BOX_AP_TO_REACH},
        has_masks=False,
    ),
}
_SHORT_NAMES = {_BOX_AP: 'box AP@.50', _MASK_AP: 'mask AP@.50'}
_NUM_STAGES = 6
_STAMP = 'demo.json'
# The outputs of a demo in addition to its stamp file.
_OUTPUTS = ('shapes', 'model', 'exported', 'predictions', 'report.html', 'pipeline.config') + tuple(
    f'{split}{rest}'
    for split in ('train', 'val')
    for rest in ('-?????-of-?????', '_label_map.pbtxt', '.report.json')
)


@option_flags.json_option
@click.command(name='demo', context_settings={'show_default': True})
@click.option('--output', default='demo_out', metavar='FOLDER', help='Folder for everything.')
@click.option(
    '--model',
    'model_name',
    type=click.Choice(list(MODELS)),
    default=_DEFAULT_MODEL,
    help='What to train: Mask R-CNN, or a small single-shot detector.',
)
@click.option('--num_train', default=2500, help='Training images.')
@click.option('--num_val', default=150, help='Validation images.')
@click.option('--num_steps', default=0, help='Training steps; 0 = as in the sample config.')
@click.option('--num_pictures', default=12, help='Pictures in the report.')
@click.option('--seed', default=0, help='Seed of data and training.')
@click.option('--force', is_flag=True, help='Delete what another demo wrote to the folder.')
def command(
    output: str,
    model_name: str,
    num_train: int,
    num_val: int,
    num_steps: int,
    num_pictures: int,
    seed: int,
    force: bool,
) -> None:
    """Generates data, converts, trains, evaluates, exports and predicts; writes a report.

    Prints each command, so that you can run it on your own data. The same command continues a
    training that was interrupted.
    """
    start = time.monotonic()
    folder = pathlib.Path(output)
    model = MODELS[model_name]
    numbers = {'num_train': num_train, 'num_val': num_val, 'num_steps': num_steps, 'seed': seed}
    options = {'model': model_name, **numbers}
    _claim(folder, options, force)
    times = _run_stages(folder, model, numbers, num_pictures)
    seconds = time.monotonic() - start
    metrics = _read_metrics(folder / 'model')
    words = [f'--{name}={value}' for name, value in options.items()]
    facts = {
        'command': shlex.join(
            ['tfod', 'demo', f'--output={output}', *words, f'--num_pictures={num_pictures}']
        ),
        'images': f'{num_train} to train, {num_val} to validate',
        **{name: _duration(value) for name, value in times.items()},
        'everything': _duration(seconds),
    }
    report = _write_report(folder, model, facts)
    _finish(model, metrics, report, seconds)


def _claim(folder: pathlib.Path, options: dict[str, str | int], force: bool) -> None:
    """Writes the options into a stamp file in the folder, and refuses a folder with other files.

    Raises:
      click.ClickException: if the folder holds a demo with other options (unless `force`), or files
        with the names of the demo's outputs but no stamp file.
    """
    stamp = folder / _STAMP
    found = [path for pattern in _OUTPUTS for path in folder.glob(pattern)]
    if stamp.exists():
        earlier = {'model': _DEFAULT_MODEL, **json.loads(stamp.read_text())}
        others = [name for name, value in options.items() if earlier.get(name) != value]
        if others and not force:
            raise click.ClickException(
                f'{folder} holds a demo with '
                + ', '.join(f'--{name}={earlier.get(name)}' for name in others)
                + ', now '
                + ', '.join(f'--{name}={options[name]}' for name in others)
                + '; give another --output, or --force to delete that demo.'
            )
        if others:
            for path in found:
                _remove(path)
    elif found:
        raise click.ClickException(
            f'{folder} holds {found[0].name}, but no {_STAMP} that says which demo wrote it; give '
            'another --output.'
        )
    folder.mkdir(parents=True, exist_ok=True)
    stamp.write_text(json.dumps(options) + '\n')


def _run_stages(
    folder: pathlib.Path, sample: Model, options: dict[str, int], num_pictures: int
) -> dict[str, float]:
    """Runs each stage by the command that a user would type; returns name -> seconds."""
    data, model, exported = folder / 'shapes', folder / 'model', folder / 'exported'
    label_map, config = folder / 'train_label_map.pbtxt', folder / 'pipeline.config'
    seed, num_steps = options['seed'], options['num_steps']
    times: dict[str, float] = {}
    with _stage(times, 'data', 'Make a small instance segmentation data set'):
        _run(
            [sys.executable, '-m', 'object_detection.dataset_tools.shapes', '--output', data]
            + ['--num_train', options['num_train'], '--num_val', options['num_val']]
            + ['--seed', seed]
        )
    with _stage(times, 'conversion', 'Convert COCO JSON to TFRecords'):
        for split, shards in (('train', 4), ('val', 1)):
            _run(
                ['tfod', 'convert', 'coco', '--images', data / split, '--keypoints']
                + ['--masks'] * sample.has_masks
                + ['--annotations', data / f'instances_{split}.json']
                + ['--output', folder / split, '--shards', shards]
            )
    with _stage(times, 'training', f'Train a small {sample.name} from scratch'):
        _write_config(config, folder, sample)
        steps = ['--num_train_steps', num_steps] if num_steps else []
        _run(['tfod', 'train', '--config', config, '--model_dir', model, '--seed', seed, *steps])
    with _stage(times, 'evaluation', 'Evaluate on the validation split'):
        _run(
            ['tfod', 'eval', '--config', config, '--checkpoint_dir', model, '--model_dir', model]
            + ['--run_once']
        )
    with _stage(times, 'export', 'Export a SavedModel and compare it with the model in process'):
        _run(
            ['tfod', 'export', '--config', config, '--checkpoint_dir', model, '--output', exported]
            + ['--verify', data / 'val']
        )
    with _stage(times, 'prediction', 'Predict on validation images'):
        pictures = folder / 'predictions'
        # An earlier run may have drawn more pictures.
        _remove(pictures)
        _run(
            ['tfod', 'predict', '--model', exported, '--input', data / 'val', '--output', pictures]
            + ['--label_map', label_map, '--limit', num_pictures]
        )
    return times


@contextlib.contextmanager
def _stage(times: dict[str, float], name: str, text: str) -> Iterator[None]:
    """Prints a headline, and records the duration of the block in seconds."""
    start = time.monotonic()
    click.secho(f'\n[{len(times) + 1}/{_NUM_STAGES}] {text}', bold=True)
    yield
    times[name] = time.monotonic() - start


def _remove(path: pathlib.Path) -> None:
    """Deletes a file or a folder, if it exists; a link is deleted, not its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _run(words: list) -> None:
    """Prints a command, then runs it; its progress goes to this terminal."""
    argv = [str(word) for word in words]
    shown = ['python' if word == sys.executable else word for word in argv]
    click.secho('$ ' + shlex.join(shown), fg='cyan')
    sys.stdout.flush()
    if argv[0] == 'tfod':
        argv = [sys.executable, '-m', 'object_detection.cli.main', *argv[1:]]
    status, is_interrupted = run_and_wait(argv, output=sys.stdout)
    if is_interrupted:
        raise _InterruptedError(status)
    if status != 0:
        raise click.ClickException(f'the command above failed (exit {status}).')


class _InterruptedError(click.ClickException):
    """A signal has ended the command, whose exit status becomes the demo's.

    If the command had finished nevertheless, the rest of the demo is missing: the status is 130.
    """

    def __init__(self, status: int):
        super().__init__('interrupted; the same command resumes from here.')
        self.exit_code = 128 - status if status < 0 else status or 130


def _write_config(path: pathlib.Path, folder: pathlib.Path, sample: Model) -> None:
    """Copies the sample config and fills in the data set's paths, as a user would do."""
    samples = importlib.resources.files('object_detection') / 'samples' / 'configs'
    text = (samples / sample.config).read_text()
    text = text.replace('PATH_TO_BE_CONFIGURED', folder.as_posix())
    path.write_text(text)
    click.echo(f'{path}: {sample.config} of the package, with the paths filled in')


def _read_metrics(model: pathlib.Path) -> dict[str, float]:
    (path,) = sorted((model / 'eval').glob('**/metrics.json'))[:1]
    return json.loads(path.read_text())


def _write_report(folder: pathlib.Path, sample: Model, facts: dict[str, str]) -> pathlib.Path:
    from object_detection.reporting import page

    path = folder / 'report.html'
    extras = page.Extras(
        title=f'{sample.name} on generated shapes',
        facts={
            **facts,
            'weights': f'{_count_weights(folder / "exported"):,}',
            'TensorFlow': importlib.metadata.version('tensorflow'),
        },
        pictures=[
            (picture.stem, picture.read_bytes())
            for picture in sorted((folder / 'predictions').glob('*.png'))
        ],
    )
    page.write(folder / 'model', path, extras)
    return path


def _count_weights(exported: pathlib.Path) -> int:
    """Counts the elements of all weights in the model's checkpoint, including moving statistics."""
    tensorflow_setup.import_tensorflow()
    import tensorflow as tf

    variables = tf.train.list_variables(str(exported / 'checkpoint' / 'ckpt-0'))
    return sum(math.prod(shape) for name, shape in variables if name.startswith('model/'))


def _duration(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))


def _finish(sample: Model, metrics: dict[str, float], report: pathlib.Path, seconds: float) -> None:
    reached = ''.join(
        f'{_SHORT_NAMES[name]} {metrics[name]:.3f} (to reach: {least:.2f}), '
        for name, least in sample.to_reach.items()
    )
    option_flags.show_result(
        {'report': report, 'seconds': seconds, 'metrics': metrics, 'to_reach': sample.to_reach},
        [click.style(f'\n{reached}{seconds / 60:.1f} min', bold=True), f'Look at {report}'],
    )
    if any(metrics[name] < least for name, least in sample.to_reach.items()):
        raise click.ClickException('the average precision to reach was not reached.')
