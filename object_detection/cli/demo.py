"""`tfod demo`: the whole job on generated data, step by step as a user would do it."""

import importlib.resources
import json
import pathlib
import shlex
import subprocess
import sys
import time

import click

BOX_AP_TO_REACH = 0.80
MASK_AP_TO_REACH = 0.75
_BOX_AP = 'DetectionBoxes_Precision/mAP@.50IOU'
_MASK_AP = 'DetectionMasks_Precision/mAP@.50IOU'
_CONFIG = 'mask_rcnn_resnet18_fpn_shapes.config'


@click.command(name='demo')
@click.option('--output', default='demo_out', show_default=True, help='Folder for everything.')
@click.option('--num_train', default=2000, show_default=True, help='Training images.')
@click.option('--num_val', default=150, show_default=True, help='Validation images.')
@click.option('--num_steps', default=0, help='Training steps; 0 = as in the sample config.')
@click.option('--num_pictures', default=12, show_default=True, help='Pictures in the report.')
@click.option('--seed', default=0, show_default=True, help='Seed of data and training.')
def command(
    output: str, num_train: int, num_val: int, num_steps: int, num_pictures: int, seed: int
) -> None:
    """Generates data, converts, trains, evaluates, exports and predicts; writes a report.

    Prints each command, so that you can run it on your own data.
    """
    start = time.monotonic()
    folder = pathlib.Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    data, model, exported = folder / 'shapes', folder / 'model', folder / 'exported'
    label_map = folder / 'train_label_map.pbtxt'
    config = folder / 'pipeline.config'

    _headline(1, 'Make a small instance segmentation data set')
    _run(
        [sys.executable, '-m', 'object_detection.dataset_tools.shapes', '--output', data]
        + ['--num_train', num_train, '--num_val', num_val, '--seed', seed]
    )

    _headline(2, 'Convert COCO JSON to TFRecords')
    for split, shards in (('train', 4), ('val', 1)):
        _run(
            ['tfod', 'convert', 'coco', '--images', data / split, '--masks']
            + ['--annotations', data / f'instances_{split}.json']
            + ['--output', folder / split, '--shards', shards]
        )

    _headline(3, 'Train a small Mask R-CNN from scratch')
    _write_config(config, folder, label_map)
    steps = ['--num_train_steps', num_steps] if num_steps else []
    _run(['tfod', 'train', '--config', config, '--model_dir', model, '--seed', seed, *steps])

    _headline(4, 'Evaluate on the validation split')
    _run(
        ['tfod', 'eval', '--config', config, '--checkpoint_dir', model, '--model_dir', model]
        + ['--run_once']
    )

    _headline(5, 'Export a SavedModel and compare it with the model in process')
    _run(
        ['tfod', 'export', '--config', config, '--checkpoint_dir', model, '--output', exported]
        + ['--verify', data / 'val']
    )

    _headline(6, 'Predict on validation images')
    pictures = folder / 'predictions'
    _run(
        ['tfod', 'predict', '--model', exported, '--input', data / 'val', '--output', pictures]
        + ['--label_map', label_map, '--limit', num_pictures]
    )
    metrics = _read_metrics(model)
    report = _write_report(folder, metrics, pictures, time.monotonic() - start)
    _finish(metrics, report, time.monotonic() - start)


def _headline(number: int, text: str) -> None:
    click.secho(f'\n[{number}/6] {text}', bold=True)


def _run(words: list) -> None:
    """Prints a command, then runs it; its progress goes to this terminal."""
    argv = [str(word) for word in words]
    shown = ['python' if word == sys.executable else word for word in argv]
    click.secho('$ ' + shlex.join(shown), fg='cyan')
    sys.stdout.flush()
    if argv[0] == 'tfod':
        argv = [sys.executable, '-m', 'object_detection.cli.main', *argv[1:]]
    finished = subprocess.run(argv, check=False)
    if finished.returncode != 0:
        raise click.ClickException(f'the command above failed (exit {finished.returncode}).')


def _write_config(path: pathlib.Path, folder: pathlib.Path, label_map: pathlib.Path) -> None:
    """Copies the sample config with the data set's paths filled in, as a user would edit it."""
    sample = importlib.resources.files('object_detection') / 'samples' / 'configs' / _CONFIG
    text = sample.read_text()
    text = text.replace('PATH_TO_BE_CONFIGURED/label_map.pbtxt', label_map.as_posix())
    text = text.replace('PATH_TO_BE_CONFIGURED', folder.as_posix())
    path.write_text(text)
    click.echo(f'{path}: {_CONFIG} of the package, with the paths filled in')


def _read_metrics(model: pathlib.Path) -> dict[str, float]:
    (path,) = sorted((model / 'eval').glob('**/metrics.json'))[:1]
    return json.loads(path.read_text())


def _write_report(
    folder: pathlib.Path, metrics: dict[str, float], pictures: pathlib.Path, seconds: float
) -> pathlib.Path:
    from object_detection.visualization.report import write_report

    history = (folder / 'model' / 'train' / 'history.jsonl').read_text().splitlines()
    path = folder / 'report.html'
    write_report(
        path,
        title='Mask R-CNN on generated shapes',
        loss_history=[json.loads(line) for line in history],
        metrics=metrics,
        pictures=[
            (picture.stem, picture.relative_to(folder).as_posix())
            for picture in sorted(pictures.glob('*.png'))
        ],
        facts={'time for everything': f'{seconds / 60:.1f} min'},
    )
    return path


def _finish(metrics: dict[str, float], report: pathlib.Path, seconds: float) -> None:
    box_ap, mask_ap = metrics[_BOX_AP], metrics[_MASK_AP]
    click.secho(
        f'\nbox AP@.50 {box_ap:.3f} (to reach: {BOX_AP_TO_REACH:.2f}), '
        f'mask AP@.50 {mask_ap:.3f} (to reach: {MASK_AP_TO_REACH:.2f}), '
        f'{seconds / 60:.1f} min',
        bold=True,
    )
    click.echo(f'Look at {report}')
    if box_ap < BOX_AP_TO_REACH or mask_ap < MASK_AP_TO_REACH:
        raise click.ClickException('the average precision to reach was not reached.')
