"""What the metrics of PASCAL VOC and of Open Images count."""

import dataclasses

from object_detection.errors import UserError


@dataclasses.dataclass(frozen=True)
class PascalOptions:
    """What a set of metrics counts.

    Attributes:
      prefix: beginning of the names of its metrics.
      masks: whether the masks of instances are compared, instead of boxes.
      is_weighted: whether the mean is taken over all detections, in one curve, instead of over the
        categories; frequent categories then count more.
      ignores_difficult: whether difficult objects and detections of them are left out.
      group_of_weight: how much finding a group counts; with 0, groups and detections in them are
        left out. None treats groups as other objects.
      only_labeled: whether detections count only if their class was verified in the image, that is,
        if it is among the image's labels or has an object there.
      recall_bounds: the least and the greatest recall of the points of the curve that count.
      iou_threshold: the smallest overlap of a correct detection.
    """

    prefix: str
    masks: bool = False
    is_weighted: bool = False
    ignores_difficult: bool = False
    group_of_weight: float | None = None
    only_labeled: bool = False
    recall_bounds: tuple[float, float] = (0.0, 1.0)
    iou_threshold: float = 0.5

    def __post_init__(self):
        low, high = self.recall_bounds
        if not 0 <= low <= high <= 1:
            raise UserError(
                'recall_lower_bound and recall_upper_bound: expected two numbers from 0 to 1, in '
                f'ascending order. Received: {low:g} and {high:g}.'
            )

    @property
    def mean_name(self) -> str:
        """Name of the mean of the average precisions."""
        low, high = self.recall_bounds
        bounds = f'@[{low:.1f},{high:.1f}]Recall' if (low, high) != (0.0, 1.0) else ''
        return f'{self.prefix}_Precision/mAP@{self.iou_threshold}IOU{bounds}'


# Its bounds of recall, and whether only labelled classes count, are fields of a config.
PRECISION_AT_RECALL = PascalOptions('PrecisionAtRecallBoxes', ignores_difficult=True)
# Earlier names of sets.
ALIASES = {
    'open_images_metrics': 'oid_V2_detection_metrics',
    'open_images_V2_detection_metrics': 'oid_V2_detection_metrics',
}

METRIC_SETS = {
    'pascal_voc_detection_metrics': PascalOptions('PascalBoxes', ignores_difficult=True),
    'weighted_pascal_voc_detection_metrics': PascalOptions(
        'WeightedPascalBoxes', ignores_difficult=True, is_weighted=True
    ),
    'pascal_voc_instance_segmentation_metrics': PascalOptions(
        'PascalMasks', ignores_difficult=True, masks=True
    ),
    'weighted_pascal_voc_instance_segmentation_metrics': PascalOptions(
        'WeightedPascalMasks', ignores_difficult=True, is_weighted=True, masks=True
    ),
    'precision_at_recall_detection_metrics': PRECISION_AT_RECALL,
    'oid_V2_detection_metrics': PascalOptions('OpenImagesV2', group_of_weight=0.0),
    'oid_challenge_detection_metrics': PascalOptions(
        'OpenImagesDetectionChallenge', group_of_weight=1.0, only_labeled=True
    ),
    'oid_challenge_segmentation_metrics': PascalOptions(
        'OpenImagesInstanceSegmentationChallenge',
        group_of_weight=0.0,
        only_labeled=True,
        masks=True,
    ),
}
