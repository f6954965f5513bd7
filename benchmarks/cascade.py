"""Measures what a cascade is worth: trains Faster R-CNN with one box stage and with three.

    python benchmarks/cascade.py --output DIR

Trains the detector of `tfod demo` without masks, once as it is and once with the two further stages
of Cascade R-CNN (https://arxiv.org/abs/1712.00726) for an IoU of 0.6 and 0.7: the same images,
seed, layers a stage and number of steps. Prints the average precision of the last checkpoint of
each on the validation images: the mean, at an IoU of 0.5 and 0.75 by the evaluation, and at 0.9 by
pycocotools from the detections that the evaluation has written.
"""

import contextlib
import functools
import io
import pathlib

import click
import learned
import numpy as np
from google.protobuf import text_format
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from object_detection.config import reader, show

_SAMPLE = 'mask_rcnn_resnet18_fpn_shapes'
_BOXES = """
faster_rcnn {
  number_of_stages: 2
  second_stage_box_predictor { mask_rcnn_box_predictor {
    predict_instance_masks: false
    share_box_across_classes: true
    box_head { num_fcs: 2 fc_depth: 256 }
    fc_hyperparams { activation: RELU }
  } }
  second_stage_box_coder {
    faster_rcnn_box_coder { y_scale: 10 x_scale: 10 height_scale: 5 width_scale: 5 }
  }
}
"""
_STAGE = """
faster_rcnn {{ cascade_stages {{
  iou_threshold: {iou}
  box_coder {{ faster_rcnn_box_coder {{
    y_scale: {center} x_scale: {center} height_scale: {size} width_scale: {size}
  }} }}
}} }}
"""
_CASCADE = (
    _STAGE.format(iou=0.6, center=20, size=10),
    _STAGE.format(iou=0.7, center=30, size=15),
)
_IOUS = ('mAP', 'mAP@.50IOU', 'mAP@.75IOU')
_HIGH = 0.9


def changed(text: str, *, stages: tuple[str, ...], detections: pathlib.Path) -> str:
    """Returns the sample for boxes alone, with further stages, which writes its detections."""
    pipeline = reader.parse_pipeline(text, 'sample')
    model = pipeline.model.faster_rcnn
    model.feature_extractor.ClearField('box_head_depth')
    for part in (_BOXES, *stages):
        text_format.Merge(part, pipeline.model)
    pipeline.eval_config.metrics_set[:] = ['coco_detection_metrics']
    pipeline.eval_config.export_path = str(detections)
    for each in (pipeline.train_input_reader, *pipeline.eval_input_reader):
        each.load_instance_masks = False
    return show.to_text(pipeline)


def average_precision(annotations: pathlib.Path, detections: pathlib.Path, iou: float) -> float:
    """Returns the mean average precision of a file of COCO results at one of COCO's ten IoU."""
    with contextlib.redirect_stdout(io.StringIO()):
        objects = COCO(str(annotations))
        evaluation = COCOeval(objects, objects.loadRes(str(detections)), 'bbox')
        evaluation.evaluate()
        evaluation.accumulate()
    (index,) = np.flatnonzero(np.isclose(evaluation.params.iouThrs, iou))
    # IoU, recalls, categories, all areas, most detections.
    values = evaluation.eval['precision'][index, :, :, 0, -1]
    return float(values[values > -1].mean())


@click.command(help=__doc__)
@click.option('--output', required=True, type=click.Path(file_okay=False))
@click.option('--num_train', default=2500, show_default=True, help='Training images.')
@click.option('--num_val', default=150, show_default=True, help='Validation images.')
@click.option('--num_steps', default=0, help='Training steps; 0 = as in the sample config.')
@click.option('--max_minutes', default=30.0, show_default=True, help='Of each training.')
@click.option('--seed', default=0, show_default=True, help='Of data and training.')
def main(
    output: str, num_train: int, num_val: int, num_steps: int, max_minutes: float, seed: int
) -> None:
    folder = pathlib.Path(output)
    learned.make_shapes(folder, num_train=num_train, num_val=num_val, seed=seed)
    annotations = folder / 'shapes' / 'instances_val.json'
    for name, stages in (('faster_rcnn', ()), ('cascade_rcnn', _CASCADE)):
        detections = folder / f'{name}.json'
        trained = learned.train(
            _SAMPLE,
            folder,
            name=name,
            seed=seed,
            num_steps=num_steps,
            max_minutes=max_minutes,
            change=functools.partial(changed, stages=stages, detections=detections),
        )
        found = {iou: trained.metrics[f'DetectionBoxes_Precision/{iou}'] for iou in _IOUS}
        found['mAP@.90IOU'] = average_precision(annotations, detections, _HIGH)
        shown = ', '.join(f'{key} {value:.3f}' for key, value in found.items())
        minutes = f'{trained.seconds / 60:.1f} minutes, {trained.cpu_seconds / 60:.1f} of processor'
        print(f'{name}: {shown}; {trained.steps} steps, {minutes}', flush=True)


if __name__ == '__main__':
    main()
