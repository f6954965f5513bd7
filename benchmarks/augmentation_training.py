"""Measures what augmentation is worth: trains on few generated shapes without and with it.

    python benchmarks/augmentation_training.py --output DIR

Trains the Mask R-CNN of `tfod demo` with a horizontal flip alone, with mosaic and copy-paste in
addition, and with all steps of the augmented sample config: the same images, seed and number of
steps. Prints and writes the average precision of the last checkpoint of each on the validation
images. The same command resumes a training that was interrupted.
"""

import functools
import pathlib
from collections.abc import Collection

import click
import learned
import measure

from object_detection.benchmarking import work
from object_detection.config import reader, show

_PLAIN = 'mask_rcnn_resnet18_fpn_shapes'
_AUGMENTED = f'{_PLAIN}_augmented'
# Name of a training -> sample config, the steps of it that are kept; all if empty.
_TRAININGS = {
    'flip': (_PLAIN, ()),
    'flip, copy-paste, mosaic': (_AUGMENTED, ('random_horizontal_flip', 'copy_paste', 'mosaic')),
    'all': (_AUGMENTED, ()),
}
_METRICS = {
    'box AP': 'DetectionBoxes_Precision/mAP',
    'box AP@.50': learned.BOX_AP,
    'mask AP': 'DetectionMasks_Precision/mAP',
    'mask AP@.50': 'DetectionMasks_Precision/mAP@.50IOU',
}
_HEADINGS = ('augmentation', *_METRICS, 'minutes', 'CPU minutes')


def restrict(text: str, *, kinds: Collection[str], num_steps: int) -> str:
    """Returns a config with some of its augmentation steps, for a training of another length.

    Args:
      text: of the config.
      kinds: names of the steps to keep; all if empty.
      num_steps: training steps; 0 for those of the config. `stop_after_step` keeps its share of
        them.
    """
    pipeline = reader.parse_pipeline(text, 'sample')
    config = pipeline.train_config
    steps = list(config.data_augmentation_options)
    del config.data_augmentation_options[:]
    for step in steps:
        if not kinds or step.WhichOneof('preprocessing_step') in kinds:
            if step.stop_after_step and num_steps:
                step.stop_after_step = round(step.stop_after_step * num_steps / config.num_steps)
            config.data_augmentation_options.append(step)
    return show.to_text(pipeline)


@click.command(help=__doc__)
@click.option('--output', required=True, type=click.Path(file_okay=False))
@click.option('--num_train', default=400, show_default=True, help='Training images.')
@click.option('--num_val', default=150, show_default=True, help='Validation images.')
@click.option('--num_steps', default=0, help='Training steps; 0 = as in the sample config.')
@click.option('--seed', default=0, show_default=True, help='Of data and trainings.')
def main(output: str, num_train: int, num_val: int, num_steps: int, seed: int) -> None:
    folder = pathlib.Path(output)
    learned.make_shapes(folder, num_train=num_train, num_val=num_val, seed=seed, masks=True)
    facts = {'num_train': num_train, 'num_val': num_val, 'seed': seed, **work.describe()}
    rows = []
    for number, (name, (sample, kinds)) in enumerate(_TRAININGS.items()):
        trained = learned.train(
            sample,
            folder,
            name=f'training_{number}',
            seed=seed,
            num_steps=num_steps,
            change=functools.partial(restrict, kinds=kinds, num_steps=num_steps),
        )
        rows.append({'augmentation': name, **trained._asdict(), **facts})
        measure.write(rows, folder / 'augmentation_training.json')
    click.echo(
        f'{facts["cpu"]}, {facts["cores"]} cores; {num_train} training images, {num_val} for '
        f'validation, {rows[0]["steps"]} steps, seed {seed}'
    )
    click.echo('\n'.join(table(rows)))


def table(rows: list[dict]) -> list[str]:
    """Returns the lines of a table of trainings, the average precisions between 0 and 1."""
    lines = [f'| {" | ".join(_HEADINGS)} |', '|---' * len(_HEADINGS) + '|']
    for row in rows:
        cells = [row['augmentation']]
        cells += [f'{row["metrics"][key]:.3f}' for key in _METRICS.values()]
        cells += [f'{row[key] / 60:.1f}' for key in ('seconds', 'cpu_seconds')]
        lines.append(f'| {" | ".join(cells)} |')
    return lines


if __name__ == '__main__':
    main()
