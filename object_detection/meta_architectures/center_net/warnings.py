"""Settings of a CenterNet that are rarely meant."""

from collections.abc import Iterator

from object_detection.meta_architectures.center_net.rules import ROOT
from object_detection.protos.center_net_pb2 import CenterNet
from object_detection.protos.losses_pb2 import ClassificationLoss


def find_advice(config: CenterNet) -> Iterator[str]:
    """Yields a sentence for each default that makes detections of a new model worse."""
    losses = {'object_center_params': config.object_center_params.classification_loss}
    for index, task in enumerate(config.keypoint_estimation_task):
        losses[f'keypoint_estimation_task[{index}].loss'] = task.loss.classification_loss
    for path, loss in losses.items():
        yield from _focal(loss, f'{ROOT}.{path}.classification_loss')
    # Without a fixed shape, a batch is padded to its largest image, if not by the resizer.
    is_fixed = config.image_resizer.WhichOneof('image_resizer_oneof') == 'fixed_shape_resizer'
    if not config.ignore_padding and not is_fixed:
        yield (
            f'{ROOT}.ignore_padding is false: peaks of the heat maps in the padding of images, '
            'which nothing trains, become detections. For a new model set it to true.'
        )


def _focal(loss: ClassificationLoss, path: str) -> Iterator[str]:
    kind = 'penalty_reduced_logistic_focal_loss'
    if loss.WhichOneof('classification_loss') == kind and not getattr(loss, kind).alpha:
        yield (
            f'{path}.{kind}.alpha is 0: easy cells, which are most, weigh as much as the others. '
            'Objects as Points has alpha: 2 beta: 4.'
        )
