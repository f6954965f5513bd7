"""Shows that a memory helps: Context R-CNN on generated photos of camera traps.

    python benchmarks/context_cameras.py --output DIR

By night the species of an animal cannot be seen in a photo (`cameras.py`); it follows from photos
of the same camera by day. All steps are commands that a user would type: records, a detector
without a memory, its embeddings, the context of each photo, a detector with the memory that
starts from the other, and, for as many steps from the same start, one without. Prints the average
precision of both on cameras of which no photo was trained on. Exits with 1 if the memory gains
less than it should.
"""

import pathlib
import re
import sys
import time
from collections.abc import Callable

import cameras
import click
import learned

_SAMPLE = 'context_rcnn_resnet18_fpn_cameras'
GAIN = 0.15


@click.command(help=__doc__)
@click.option('--output', required=True, type=click.Path(file_okay=False))
@click.option('--num_cameras', default=160, show_default=True, help='Cameras to train on.')
@click.option('--num_val_cameras', default=20, show_default=True, help='Cameras to measure on.')
@click.option('--photos', default=12, show_default=True, help='Photos of each camera.')
@click.option('--num_base_steps', default=800, show_default=True, help='Steps without a memory.')
@click.option('--num_steps', default=600, show_default=True, help='Steps with and without it.')
@click.option('--seed', default=0, show_default=True, help='Of data and trainings.')
def main(
    output: str,
    num_cameras: int,
    num_val_cameras: int,
    photos: int,
    num_base_steps: int,
    num_steps: int,
    seed: int,
) -> None:
    start = time.monotonic()
    folder = pathlib.Path(output)
    folder.mkdir(parents=True)
    cameras.write_label_map(folder / 'label_map.pbtxt')
    for part, count, offset in (('train', num_cameras, 0), ('val', num_val_cameras, 1)):
        data = folder / f'{part}_data'
        counts = cameras.write(
            data, num_cameras=count, photos=photos, seed=2 * seed + offset, prefix=part
        )
        print(f'{part}: {counts}', flush=True)
        learned.tfod(
            *('context', 'camera-traps', '--image_directory', data / 'images'),
            *('--input_annotations_file', data / 'annotations.json'),
            *('--output_tfrecord_prefix', folder / part, '--num_images_per_shard', 500),
        )
    _train(folder, 'base', seed, num_base_steps, without_memory)
    _add_context(folder)

    def with_start(change: Callable[[str], str]) -> Callable[[str], str]:
        checkpoint = (folder / 'base' / 'model').as_posix()
        return lambda text: re.sub(
            r'fine_tune_checkpoint: ".*"', f'fine_tune_checkpoint: "{checkpoint}"', change(text)
        )

    reached = {
        'without': _train(folder, 'without', seed, num_steps, with_start(continued)),
        'with': _train(folder, 'with', seed, num_steps, with_start(str)),
    }
    minutes = (time.monotonic() - start) / 60
    gain = reached['with'] - reached['without']
    print(
        f'box AP@.50 without a memory {reached["without"]:.3f}, with it {reached["with"]:.3f}: '
        f'{gain:+.3f}; {minutes:.1f} minutes in all'
    )
    if gain < GAIN:
        sys.exit(f'to gain: {GAIN:g}')


def continued(text: str) -> str:
    """Returns the text of the config without the memory, and with the records without it."""
    start = text.index('    # Features of 256 numbers')
    end = text.index('    }\n', text.index('context_config')) + len('    }\n')
    text = (text[:start] + text[end:]).replace('  load_context_features: true\n', '')
    return text.replace('_context-?????', '-?????')


def without_memory(text: str) -> str:
    """Returns the text of the config for a training from random weights, without the memory."""
    text = continued(text)
    start = text.index('  # A detector of the same classes')
    end = text.index('}\n', start)
    # The warm-up of a training from scratch ends at a larger rate.
    return (text[:start] + text[end:]).replace('rate_base: 0.02', 'rate_base: 0.04')


def _train(
    folder: pathlib.Path, name: str, seed: int, num_steps: int, change: Callable[[str], str]
) -> float:
    trained = learned.train(
        _SAMPLE, folder, name=name, seed=seed, num_steps=num_steps, change=change
    )
    reached = trained.metrics[learned.BOX_AP]
    print(f'{name}: box AP@.50 {reached:.3f} after {trained.seconds / 60:.1f} minutes', flush=True)
    return reached


def _add_context(folder: pathlib.Path) -> None:
    """Writes the records of both parts with the context of each photo."""
    exported = folder / 'base' / 'exported'
    learned.tfod(
        *('export', '--config', folder / 'base' / 'pipeline.config', '--output', exported),
        *('--checkpoint_dir', folder / 'base' / 'model', '--input_type', 'tf_example'),
        *('--set', 'model.faster_rcnn.output_final_box_features=true'),
    )
    for part in ('train', 'val'):
        learned.tfod(
            *('context', 'embeddings', '--embedding_input_tfrecord', f'{folder / part}-*'),
            *('--embedding_output_tfrecord', folder / f'{part}_embedded'),
            *('--embedding_model_dir', exported, '--batch_size', 16),
        )
        learned.tfod(
            *('context', 'add', '--input_tfrecord', f'{folder / part}_embedded-*'),
            *('--output_tfrecord', folder / f'{part}_context'),
            *('--max_num_elements_in_context_features', 16),
        )


if __name__ == '__main__':
    main()
