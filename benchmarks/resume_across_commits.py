"""Checks that a training of an earlier commit resumes here and ends with the same bits.

    python benchmarks/resume_across_commits.py --commit COMMIT

Installs the package as it was at a commit into a folder of its own (pip builds it, so a package
index is needed). It generates a small data set and trains the demo's Mask R-CNN for half of the
steps. Then the earlier package resumes a copy of the run directory up to the last step, and the
package of this repository resumes another copy. Prints each array of the newest checkpoints and
each loss of the histories that differs; the exit status is 1 if there is any. Both packages run on
the same machine with the same TensorFlow, because other machines sum in another order.
"""

import importlib.resources
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import click
import numpy as np

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_CONFIG = 'mask_rcnn_resnet18_fpn_shapes.config'
# The config has augmentation and several shards; a shuffle buffer and averages have states, too.
_SETTINGS = (
    'train_config.batch_size=2',
    'train_config.optimizer.use_moving_average=true',
    'train_input_reader.shuffle_buffer_size=16',
)


@click.command(help=__doc__)
@click.option('--commit', required=True, help='Of the earlier package.')
@click.option('--steps', default=12, show_default=True, help='Of the whole training.')
@click.option('--folder', type=click.Path(file_okay=False), help='Keeps everything that is made.')
def main(commit: str, steps: int, folder: str | None) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        differing = compare(commit, steps, pathlib.Path(folder or temporary).resolve())
    for text in differing:
        print(text)
    if differing:
        raise SystemExit(1)


def compare(commit: str, steps: int, folder: pathlib.Path) -> list[str]:
    """Returns a sentence for each array that differs, and for the losses."""
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f'--folder {folder}: expected a folder that is new or empty.')
    folder.mkdir(parents=True, exist_ok=True)
    before, here = install(commit, folder), _ROOT
    config = write_data(before, folder)
    train(before, config, folder / 'half', steps // 2)
    for package, name in ((before, 'before'), (here, 'here')):
        shutil.copytree(folder / 'half', folder / name)
        train(package, config, folder / name, steps)
    return differences(folder / 'before', folder / 'here', steps)


def differences(before: pathlib.Path, here: pathlib.Path, steps: int) -> list[str]:
    """Compares the newest checkpoints and the histories of two run directories."""
    expected, found = arrays(before), arrays(here)
    only = sorted(expected.keys() ^ found.keys())
    texts = [f'{name}: only one of the checkpoints has it.' for name in only]
    for name in sorted(expected.keys() & found.keys()):
        same_type = expected[name].dtype == found[name].dtype
        if not same_type or expected[name].tobytes() != found[name].tobytes():
            texts.append(f'{name}: the arrays differ.')
    lines = [losses(folder) for folder in (before, here)]
    if lines[0] != lines[1] or len(lines[0]) != steps:
        texts.append(f'The losses differ, or the histories have other than {steps} steps.')
    print(f'{len(expected)} arrays and the losses of {len(lines[0])} steps were compared.')
    return texts


def install(commit: str, folder: pathlib.Path) -> pathlib.Path:
    """Installs the package of a commit alone; what it requires is that of this environment."""
    source, target = folder / 'source', folder / 'installed'
    source.mkdir()
    archive = subprocess.run(
        ['git', 'archive', commit], cwd=_ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    subprocess.run(['tar', '-x', '-C', source], input=archive, check=True)
    pip = [sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps']
    subprocess.run([*pip, '--target', target, source], check=True)
    return target


def write_data(package: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Writes images, records and the config of their training; returns its path."""
    images = folder / 'shapes'
    sizes = ['--num_train', '40', '--num_val', '2']
    run(package, 'object_detection.dataset_tools.shapes', '--output', images, *sizes)
    for split in ('train', 'val'):
        annotations = images / f'instances_{split}.json'
        files = ['--images', images / split, '--annotations', annotations, '--shards', '3']
        words = ['convert', 'coco', '--masks', *files, '--output', folder / split]
        run(package, 'object_detection.cli.main', *words)
    samples = importlib.resources.files('object_detection') / 'samples' / 'configs'
    text = (samples / _CONFIG).read_text().replace('PATH_TO_BE_CONFIGURED', folder.as_posix())
    config = folder / 'pipeline.config'
    config.write_text(text)
    return config


def train(
    package: pathlib.Path, config: pathlib.Path, model_dir: pathlib.Path, num_steps: int
) -> None:
    words = ['--pipeline_config_path', config, '--model_dir', model_dir, '--seed', 1]
    words += ['--num_train_steps', num_steps, '--checkpoint_every_n', 4, '--log_every_n', 1]
    settings = [word for setting in _SETTINGS for word in ('--set', setting)]
    run(package, 'object_detection.model_main_tf2', '--deterministic_ops', *words, *settings)


def run(package: pathlib.Path, module: str, *words: object) -> None:
    """Runs a module of a package, in a folder without another one."""
    environment = os.environ | {'PYTHONPATH': str(package)}
    command = [sys.executable, '-m', module, *map(str, words)]
    subprocess.run(command, check=True, env=environment, cwd=package.parent)


def arrays(model_dir: pathlib.Path) -> dict[str, np.ndarray]:
    """Name -> array of all that the newest checkpoint of a training holds."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(model_dir)))
    names = reader.get_variable_to_shape_map()
    values = {name: reader.get_tensor(name) for name in names if not name.startswith('_')}
    return {name: np.asarray(value) for name, value in values.items()}


def losses(model_dir: pathlib.Path) -> list[dict]:
    lines = (model_dir / 'train' / 'history.jsonl').read_text().splitlines()
    return [json.loads(line)['losses'] for line in lines]


if __name__ == '__main__':
    main()
