"""Overfits a Mask R-CNN on a few photos: the learning machinery works on real annotations.

    python benchmarks/overfit.py --images DIR --annotations instances.json --output DIR

Takes the first photos with objects and without crowds, trains the small sample config on them at a
reduced size, evaluates on the same photos every so many steps, and stops when both averages of
precision are reached. Prints a line an evaluation and exits with 1 if they are not reached in time.
"""

import json
import pathlib
import subprocess
import sys
import time

import click

_CONFIG = 'object_detection/samples/configs/mask_rcnn_resnet18_fpn_shapes.config'
_ROOT = pathlib.Path(__file__).resolve().parents[1]
_RESIZER = (
    'keep_aspect_ratio_resizer { min_dimension: %d max_dimension: %d pad_to_max_dimension: true }'
)
_NUM_STEPS = 6000
_BOX, _MASK = 'DetectionBoxes_Precision/mAP@.50IOU', 'DetectionMasks_Precision/mAP@.50IOU'


@click.command(help=__doc__)
@click.option('--images', required=True, type=click.Path(exists=True, file_okay=False))
@click.option('--annotations', required=True, type=click.Path(exists=True, dir_okay=False))
@click.option('--output', required=True, type=click.Path(file_okay=False))
@click.option('--num_images', default=8, show_default=True)
@click.option('--image_size', default=224, show_default=True)
@click.option('--eval_every', default=300, show_default=True, help='Steps between evaluations.')
@click.option('--max_minutes', default=25.0, show_default=True)
@click.option('--box_ap', default=0.8, show_default=True, help='AP@.50 to reach.')
@click.option('--mask_ap', default=0.7, show_default=True, help='AP@.50 to reach.')
def main(
    images: str,
    annotations: str,
    output: str,
    num_images: int,
    image_size: int,
    eval_every: int,
    max_minutes: float,
    box_ap: float,
    mask_ap: float,
) -> None:
    folder = pathlib.Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    subset = folder / 'subset.json'
    num_classes = write_subset(pathlib.Path(annotations), subset, num_images)
    records = folder / 'photos'
    tfod(
        *('convert', 'coco', '--images', images, '--annotations', subset, '--masks'),
        *('--output', records, '--shards', 1),
    ).wait()
    settings = overfit_settings(records, num_classes, image_size)
    training = tfod(
        *('train', '--config', _ROOT / _CONFIG, '--model_dir', folder / 'model', '--seed', 0),
        *('--num_train_steps', _NUM_STEPS, '--eval_every_n_steps', eval_every),
        *(word for setting in settings for word in ('--set', setting)),
    )
    try:
        reached = watch(training, folder / 'model', max_minutes, box_ap, mask_ap)
    finally:
        # Saves a checkpoint and ends.
        training.terminate()
        training.wait()
    if not reached:
        sys.exit(f'not reached in {max_minutes:g} minutes')


def watch(
    training: subprocess.Popen,
    model_dir: pathlib.Path,
    max_minutes: float,
    box_ap: float,
    mask_ap: float,
) -> bool:
    """Prints each evaluation; True once both averages of precision are reached."""
    started, seen = time.monotonic(), 0
    history = model_dir / 'eval' / 'metrics.jsonl'
    while time.monotonic() - started < 60 * max_minutes:
        ended = training.poll() is not None
        lines = history.read_text().splitlines() if history.exists() else []
        for line in lines[seen:]:
            entry = json.loads(line)
            box, mask = entry['metrics'][_BOX], entry['metrics'][_MASK]
            minutes = (time.monotonic() - started) / 60
            print(
                f'step {entry["step"]}: box AP@.50 {box:.3f}, mask AP@.50 {mask:.3f}, '
                f'{minutes:.1f} min',
                flush=True,
            )
            if box >= box_ap and mask >= mask_ap:
                return True
        seen = len(lines)
        if ended:
            return False
        time.sleep(1)
    return False


def write_subset(annotations: pathlib.Path, target: pathlib.Path, num_images: int) -> int:
    """Writes the annotations of the first fitting images; returns the largest category id."""
    data = json.loads(annotations.read_text())
    crowded = {row['image_id'] for row in data['annotations'] if row.get('iscrowd')}
    annotated = {row['image_id'] for row in data['annotations']} - crowded
    chosen = [image for image in data['images'] if image['id'] in annotated][:num_images]
    ids = {image['id'] for image in chosen}
    data['images'] = chosen
    data['annotations'] = [row for row in data['annotations'] if row['image_id'] in ids]
    target.write_text(json.dumps(data))
    return max(category['id'] for category in data['categories'])


def overfit_settings(records: pathlib.Path, num_classes: int, image_size: int) -> list[str]:
    """What differs from the sample config."""
    reader = f'{records}-?????-of-?????'
    label_map = f'{records}_label_map.pbtxt'
    model = 'model.faster_rcnn'
    schedule = 'train_config.optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate'
    levels = '{ min_level: 2 max_level: 6 additional_layer_depth: 64 }'
    return [
        f'{model}.num_classes={num_classes}',
        f'{model}.image_resizer={{ {_RESIZER % (image_size, image_size)} }}',
        f'{model}.feature_extractor.fpn={levels}',
        f'{model}.first_stage_anchor_generator.multiscale_anchor_generator.max_level=6',
        'train_config.data_augmentation_options=',
        f'{schedule}.learning_rate_base=0.02',
        f'{schedule}.total_steps={_NUM_STEPS}',
        f'train_input_reader.label_map_path={label_map}',
        f'eval_input_reader[0].label_map_path={label_map}',
        f'train_input_reader.tf_record_input_reader.input_path={reader}',
        f'eval_input_reader[0].tf_record_input_reader.input_path={reader}',
        'train_input_reader.max_number_of_boxes=50',
        'eval_input_reader[0].max_number_of_boxes=50',
        'eval_config.batch_size=4',
    ]


def tfod(*words) -> subprocess.Popen:
    """Starts the `tfod` command."""
    argv = [str(word) for word in words]
    return subprocess.Popen([sys.executable, '-m', 'object_detection.cli.main', *argv])


if __name__ == '__main__':
    main()
