"""Measures whether detections depend on the frame that an image is padded to.

    tfod demo --output demo_out
    python benchmarks/crop_frames.py --config demo_out/pipeline.config \\
        --checkpoint demo_out/model --images demo_out/shapes/val

Each image is resized as the config says and padded with zeros, bottom and right, to each frame. A
feature pyramid pads a frame to a multiple of 32 again, so crops of 133 x 133 and 160 x 160 pixels
are made from the same feature maps. Detections of the image without padding are the ones to find.
Prints a table, a line a frame: how many of the confident ones are found (the same class, a box of
IoU 0.7 or more), and the mean IoU of their masks, each pasted into the image.
"""

import pathlib

import click
import numpy as np
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.config import reader
from object_detection.core import boxes as box_ops
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.metrics import mask_pasting
from object_detection.weights import checkpoints, restore

_SAME_IOU = 0.7
_SIDE = 256


@click.command(help=__doc__)
@click.option('--config', required=True, type=click.Path(exists=True, dir_okay=False))
@click.option('--checkpoint', required=True, help='A prefix, or a folder of checkpoints.')
@click.option('--images', required=True, type=click.Path(exists=True, file_okay=False))
@click.option('--num_images', default=20, show_default=True)
@click.option('--min_score', default=0.5, show_default=True, help='Of confident detections.')
@click.option(
    '--frame',
    'frames',
    multiple=True,
    default=('160x160', '133x133', '128x133'),
    show_default=True,
    help='Height x width in pixels. Repeat it for several.',
)
def main(
    config: str,
    checkpoint: str,
    images: str,
    num_images: int,
    min_score: float,
    frames: tuple[str, ...],
) -> None:
    pipeline = reader.read_pipeline(config)
    detector = model_builder.build(pipeline.model, is_training=False)
    detector.build_variables()
    restore.restore_exactly(detector, checkpoints.find(checkpoint), averages=False)
    paths = sorted(p for p in pathlib.Path(images).iterdir() if p.suffix in ('.jpg', '.png'))
    if not paths:
        raise click.ClickException(f'{images}: expected .jpg or .png files. Received: none.')
    decoded = [tf.io.decode_image(p.read_bytes(), channels=3) for p in paths[:num_images]]
    expected = [detect(detector, image, None) for image in decoded]
    expected = [confident(detections, min_score) for detections in expected]
    total = sum(len(detections['detection_scores']) for detections in expected)
    print(f'{len(decoded)} images, {total} detections of score {min_score:g} or more')
    print(f'{"frame":>9} {"found":>6} {"mean IoU of their masks":>24}')
    for frame in frames:
        height, width = (int(side) for side in frame.split('x'))
        found, mask_ious = 0, []
        for image, wanted in zip(decoded, expected, strict=True):
            framed = confident(detect(detector, image, (height, width)), min_score)
            pairs = matches(wanted, framed)
            found += len(pairs)
            if 'detection_masks' in wanted:
                mask_ious += [mask_iou(wanted, framed, pair) for pair in pairs]
        mean = f'{np.mean(mask_ious):.3f}' if mask_ious else '-'
        print(f'{frame:>9} {found:>6} {mean:>24}')


def detect(
    detector: DetectionModel, image: tf.Tensor, frame: tuple[int, int] | None
) -> dict[str, np.ndarray]:
    """Returns the detections of one image uint8 [H, W, 3] in a frame of (height, width).

    None is the frame that the config's resizer gives.
    """
    images, true_shapes = detector.preprocess(image[tf.newaxis])
    if frame is not None:
        height, width = frame[0] - images.shape[1], frame[1] - images.shape[2]
        images = tf.pad(images, [[0, 0], [0, height], [0, width], [0, 0]])
    detections = detector.postprocess(detector.predict(images, true_shapes), true_shapes)
    return {name: value[0].numpy() for name, value in detections.items()}


def confident(detections: dict[str, np.ndarray], min_score: float) -> dict[str, np.ndarray]:
    """Takes the rows of at least this score."""
    rows = np.flatnonzero(detections['detection_scores'] >= min_score)
    names = ('detection_boxes', 'detection_scores', 'detection_classes', 'detection_masks')
    return {name: detections[name][rows] for name in names if name in detections}


def matches(wanted: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> list[tuple[int, int]]:
    """Returns pairs of rows of the same detection, each row at most once."""
    overlaps = box_ops.iou(wanted['detection_boxes'], found['detection_boxes']).numpy()
    same_class = wanted['detection_classes'][:, np.newaxis] == found['detection_classes']
    overlaps = np.where(same_class, overlaps, 0.0)
    pairs = []
    for row in range(len(overlaps)):
        if overlaps.shape[1] and overlaps[row].max() >= _SAME_IOU:
            column = int(overlaps[row].argmax())
            pairs.append((row, column))
            overlaps[:, column] = 0.0
    return pairs


def mask_iou(
    wanted: dict[str, np.ndarray], found: dict[str, np.ndarray], pair: tuple[int, int]
) -> float:
    """Returns the IoU of two detections' masks, pasted into a square of `_SIDE` pixels."""
    first, second = (
        mask_pasting.paste_mask(
            side['detection_masks'][row], side['detection_boxes'][row] * _SIDE, _SIDE, _SIDE
        )
        for side, row in zip((wanted, found), pair, strict=True)
    )
    union = np.logical_or(first, second).sum()
    return float(np.logical_and(first, second).sum() / union) if union else 1.0


if __name__ == '__main__':
    main()
