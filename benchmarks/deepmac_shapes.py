"""Trains masks of some classes, and measures those of the others (DeepMAC).

    python benchmarks/deepmac_shapes.py --max_minutes 12 --output DIR

Makes the shapes of `tfod demo` with masks and trains a small CenterNet with DeepMAC on them: boxes
of all four classes, masks of the classes of `--seen` alone. Then it prints the average precision of
the masks of the seen and of the unseen classes, and how well masks in annotated boxes overlap with
the annotated ones, beside the overlap of the filled boxes, and draws the masks of unseen classes on
some validation images. Exits with 1 if the mask AP@.50 to reach of the unseen classes is not
reached.
"""

import json
import pathlib
import sys

import click
import learned
import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image, ImageDraw

from object_detection import paste_masks
from object_detection.data.coco import masks as coco_masks
from object_detection.dataset_tools import shapes
from object_detection.protos import input_reader_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.runtime.saved_detector import SavedModelRuntime

_SAMPLE = 'centernet_resnet18_v1_fpn_shapes'
_MASK_AP = 'DetectionMasks_Precision/mAP{} BySuperCategory/{}'
_MASKS = """
  classification_loss { weighted_sigmoid {} }
  task_loss_weight: 5
  dim: 16
  pixel_embedding_dim: 8
  mask_size: 16
  network_type: 'hourglass10'
  num_init_channels: 16
  mask_num_subsamples: 6
"""
_BOXES = 'image_and_boxes_tensor'
# Scores of what is drawn.
_LEAST_SCORE = 0.4


def with_masks(text: str, seen: tuple[str, ...], batch_size: int) -> str:
    """Returns the text of the sample config with masks of the classes of `seen`."""
    pipeline = text_format.Parse(text, TrainEvalPipelineConfig())
    task = pipeline.model.center_net.deepmac_mask_estimation
    text_format.Parse(_MASKS, task)
    ids = {each['name']: each['id'] for each in shapes.CATEGORIES}
    task.allowed_masked_classes_ids.extend(ids[name] for name in seen)
    pipeline.train_config.batch_size = batch_size
    for reader in (pipeline.train_input_reader, *pipeline.eval_input_reader):
        reader.load_instance_masks = True
        reader.mask_type = input_reader_pb2.PNG_MASKS
    config = pipeline.eval_config
    config.all_metrics_per_category = True
    config.metrics_set.append('coco_mask_metrics')
    unseen = [name for name in ids if name not in seen]
    config.super_categories['seen'] = ','.join(seen)
    config.super_categories['unseen'] = ','.join(unseen)
    return text_format.MessageToString(pipeline)


def overlaps_in_boxes(folder: pathlib.Path) -> dict[str, list[tuple[float, float]]]:
    """Predicts masks in the annotated boxes of the validation images.

    Returns:
      Class -> of each object the overlap (IoU) of its mask and of its filled box with the annotated
      mask.
    """
    detect = tf.saved_model.load(str(folder / 'exported_boxes' / 'saved_model'))
    data = json.loads((folder / 'shapes' / 'instances_val.json').read_text())
    names = {each['id']: each['name'] for each in data['categories']}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names.values()}
    for entry in data['images']:
        objects = [each for each in data['annotations'] if each['image_id'] == entry['id']]
        height, width = entry['height'], entry['width']
        image = np.array(Image.open(folder / 'shapes' / 'val' / entry['file_name']).convert('RGB'))
        x, y, w, h = np.array([each['bbox'] for each in objects], np.float32).T
        boxes = np.stack([y / height, x / width, (y + h) / height, (x + w) / width], axis=1)
        outputs = detect.signatures['serving_default'](
            input_tensor=tf.constant(image[np.newaxis]), boxes=tf.constant(boxes[np.newaxis])
        )
        masks = paste_masks(outputs['detection_masks'][0].numpy(), boxes, height, width)
        filled = paste_masks(np.ones([len(boxes), 2, 2]), boxes, height, width)
        for each, *pair in zip(objects, masks, filled, strict=True):
            truth = coco_masks.decode(each['segmentation'], height, width) > 0
            ious = [(truth & (mask > 0)).sum() / (truth | (mask > 0)).sum() for mask in pair]
            found[names[each['category_id']]].append(tuple(ious))
    return found


def draw(folder: pathlib.Path, unseen: list[int], count: int) -> pathlib.Path:
    """Draws the masks of unseen classes in red on validation images, side by side with these."""
    detector = SavedModelRuntime(folder / 'exported')
    pairs = []
    for path in sorted((folder / 'shapes' / 'val').glob('*.jpg'))[:count]:
        image = np.array(Image.open(path).convert('RGB'))
        found = {key: value.numpy() for key, value in detector(image).items()}
        is_shown = (found['detection_scores'] > _LEAST_SCORE) & np.isin(
            found['detection_classes'].astype(int), unseen
        )
        shown = image.copy()
        height, width = image.shape[:2]
        boxes = found['detection_boxes'][is_shown]
        for mask in paste_masks(found['detection_masks'][is_shown], boxes, height, width):
            shown[mask > 0] = shown[mask > 0] // 2 + np.array([127, 0, 0], np.uint8)
        framed = Image.fromarray(shown)
        pen = ImageDraw.Draw(framed)
        for top, left, bottom, right in boxes * [height, width, height, width]:
            pen.rectangle([left, top, right, bottom], outline='red')
        pairs.append(np.concatenate([image, np.array(framed)], axis=1))
    rows = [np.concatenate(pairs[i : i + 2], axis=1) for i in range(0, len(pairs) - 1, 2)]
    path = folder / 'unseen_masks.png'
    Image.fromarray(np.concatenate(rows)).resize((1024, 256 * len(rows)), 0).save(path)
    return path


@click.command(help=__doc__)
@click.option('--output', required=True, type=click.Path(file_okay=False))
@click.option('--seen', default='circle,cross', show_default=True, help='Classes with masks.')
@click.option('--num_train', default=1500, show_default=True, help='Training images.')
@click.option('--num_val', default=100, show_default=True, help='Validation images.')
@click.option('--num_steps', default=1200, show_default=True, help='Training steps.')
@click.option('--batch_size', default=8, show_default=True, help='Images of a step.')
@click.option('--max_minutes', default=15.0, show_default=True, help='For the training.')
@click.option('--seed', default=0, show_default=True, help='Of data and training.')
@click.option('--mask_ap', default=0.3, show_default=True, help='Unseen AP@.50 to reach.')
def main(
    output: str,
    seen: str,
    num_train: int,
    num_val: int,
    num_steps: int,
    batch_size: int,
    max_minutes: float,
    seed: int,
    mask_ap: float,
) -> None:
    folder, names = pathlib.Path(output), tuple(seen.split(','))
    learned.make_shapes(folder, num_train=num_train, num_val=num_val, seed=seed, masks=True)
    trained = learned.train(
        _SAMPLE,
        folder,
        seed=seed,
        num_steps=num_steps,
        max_minutes=max_minutes,
        change=lambda text: with_masks(text, names, batch_size),
    )
    for name, inputs in (('exported', 'image_tensor'), ('exported_boxes', _BOXES)):
        learned.tfod(
            *('export', '--config', folder / 'pipeline.config', '--checkpoint_dir'),
            *(folder / 'model', '--output', folder / name, '--input_type', inputs),
        )
    for group in ('seen', 'unseen'):
        values = [trained.metrics[_MASK_AP.format(iou, group)] for iou in ('', '@.50IOU')]
        print(f'masks of {group} classes: AP {values[0]:.3f}, AP@.50 {values[1]:.3f}')
    for name, pairs in overlaps_in_boxes(folder).items():
        of_mask, of_box = np.mean(pairs, axis=0)
        print(
            f'{name} ({"seen" if name in names else "unseen"}): IoU in annotated boxes '
            f'{of_mask:.3f}, of the filled boxes {of_box:.3f}'
        )
    unseen = [each['id'] for each in shapes.CATEGORIES if each['name'] not in names]
    print(f'the masks of unseen classes are drawn in {draw(folder, unseen, 8)}')
    print(f'{trained.steps} steps, {trained.seconds / 60:.1f} minutes of training')
    if values[1] < mask_ap:
        sys.exit(f'to reach: mask AP@.50 {mask_ap:g} of unseen classes')


if __name__ == '__main__':
    main()
