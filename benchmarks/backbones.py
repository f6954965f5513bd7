"""Trains Mask R-CNN on generated shapes with some backbones, for the same time each.

    python benchmarks/backbones.py --output DIR --minutes 5 --backbone keras:EfficientNetV2B0

Weights are random. The first backbone is the sample's own, ResNet-18. A short training measures how
many steps a backbone makes in the time; the schedule of the other one ends with them. Prints the
average precision of boxes and masks of each.
"""

import functools
import json
import pathlib
import statistics

import click
import learned

from object_detection.config.reader import read_pipeline

_SAMPLE = 'mask_rcnn_resnet18_fpn_shapes'
_TYPE = "type: 'faster_rcnn_resnet18_fpn_keras'"
# Steps; the warm-up of the sample has 100.
_PILOT = 120


def _with_backbone(name: str, text: str) -> str:
    return text.replace(_TYPE, f"type: 'faster_rcnn_fpn' backbone: '{name}'") if name else text


def _steps_per_second(folder: pathlib.Path) -> float:
    """Returns the median rate of the second half of a training."""
    lines = (folder / 'model' / 'train' / 'history.jsonl').read_text().splitlines()
    batch = read_pipeline(str(folder / 'pipeline.config')).train_config.batch_size
    rates = [json.loads(line)['images_per_second'] for line in lines[len(lines) // 2 :]]
    return statistics.median(rates) / batch


@click.command(help=__doc__)
@click.option('--output', required=True, type=click.Path(file_okay=False))
@click.option('--backbone', 'backbones', multiple=True, required=True, help='Repeatable.')
@click.option('--minutes', default=5.0, show_default=True, help='Of training, for each.')
@click.option('--num_train', default=2500, show_default=True, help='Training images.')
@click.option('--num_val', default=150, show_default=True, help='Validation images.')
def main(
    output: str, backbones: tuple[str, ...], minutes: float, num_train: int, num_val: int
) -> None:
    folder = pathlib.Path(output)
    learned.make_shapes(folder, num_train=num_train, num_val=num_val, seed=0, masks=True)
    for name in ('', *backbones):
        label = name or 'resnet_v1_18'
        change = functools.partial(_with_backbone, name)
        place = label.replace(':', '_')
        learned.train(_SAMPLE, folder, name=f'pilot_{place}', num_steps=_PILOT, change=change)
        rate = _steps_per_second(folder / f'pilot_{place}')
        steps = int(rate * 60 * minutes)
        trained = learned.train(_SAMPLE, folder, name=place, num_steps=steps, change=change)
        print(
            f'{label}: {steps} steps, {trained.seconds / 60:.1f} minutes in all: '
            + ', '.join(
                f'{kind} AP {trained.metrics[f"Detection{kind}_Precision/mAP"]:.3f}, '
                f'AP@.50 {trained.metrics[f"Detection{kind}_Precision/mAP@.50IOU"]:.3f}'
                for kind in ('Boxes', 'Masks')
            ),
            flush=True,
        )


if __name__ == '__main__':
    main()
