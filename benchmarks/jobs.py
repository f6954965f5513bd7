"""A measurement of a speed benchmark: its options, and the settings that fix the amount of work."""

import dataclasses

PROPOSALS = 1000
DETECTIONS = 100
ROIS = 512
MASK_ROIS = 128

_MODEL = 'model.faster_rcnn'
_NMS = f'{_MODEL}.second_stage_post_processing.batch_non_max_suppression'
_FIXED = (
    f'{_MODEL}.first_stage_max_proposals={PROPOSALS}',
    f'{_MODEL}.second_stage_batch_size={ROIS}',
    f'{_MODEL}.max_num_mask_rois={MASK_ROIS}',
    f'{_NMS}.score_threshold=0',
    f'{_NMS}.max_detections_per_class={DETECTIONS}',
    f'{_NMS}.max_total_detections={DETECTIONS}',
)
# How torchvision's mask_rcnn_resnet50_fpn crops and proposes.
_LIKE_TORCHVISION = (
    f'{_MODEL}.first_stage_pre_nms_topk_per_level={PROPOSALS}',
    f'{_MODEL}.first_stage_pre_nms_topk_per_level_eval={PROPOSALS}',
    *(
        f'{_MODEL}.{crops}.{setting}'
        for crops in ('roi_align', 'mask_roi_align')
        for setting in ('sampling_ratio=2', 'min_level=2', 'max_level=5')
    ),
)
# Name of a work -> the settings that it adds to a config.
SETTINGS = {
    'torchvision': (*_FIXED, *_LIKE_TORCHVISION),
    'recipe': _FIXED,
    'config': (),
}
REAL_MASK_ROIS = (f'{_MODEL}.pad_mask_rois=false',)


@dataclasses.dataclass(frozen=True)
class Job:
    """One measurement.

    Attributes:
      config: name or path.
      batch_size: B.
      size: side of the images; None takes what the config's resizer makes.
      precision: a name that `training.precision.scope` knows.
      jit_compile: whether XLA compiles the whole step.
      steps, warmup: timed runs, and runs between the first and these.
      work: key of `SETTINGS`.
      mask_rois: training only: 'padded' or 'real'.
      settings: further ones, PATH=VALUE; they go before those of the work.
      compare: whether to compare with the plain execution.
      profile: whether to add the seconds of each part.
      weights: file that `write_weights` wrote; None takes random weights.
      roof: inference only: whether to time the convolutions alone and the model without its
        post-processing, too.
      export: inference only: whether to measure the model's export, and the model beside it.
    """

    config: str
    batch_size: int = 1
    size: int | None = None
    precision: str = 'float32'
    jit_compile: bool = False
    steps: int = 5
    warmup: int = 1
    work: str = 'config'
    mask_rois: str = 'padded'
    settings: tuple[str, ...] = ()
    compare: bool = True
    profile: bool = False
    roof: bool = False
    export: bool = False
    weights: str | None = None

    @property
    def all_settings(self) -> tuple[str, ...]:
        real = REAL_MASK_ROIS if self.mask_rois == 'real' else ()
        return (*SETTINGS[self.work], *real, *self.settings)


def family(path: str) -> str:
    """Returns the family of the detector of a config, such as 'faster_rcnn'."""
    from object_detection.config.reader import read_pipeline

    return read_pipeline(path).model.WhichOneof('model')
