"""The names of the losses of Faster R-CNN, those of the reference; loads no TensorFlow."""

RPN_LOCALIZATION = 'Loss/RPNLoss/localization_loss'
RPN_OBJECTNESS = 'Loss/RPNLoss/objectness_loss'
BOX_LOCALIZATION = 'Loss/BoxClassifierLoss/localization_loss'
BOX_CLASSIFICATION = 'Loss/BoxClassifierLoss/classification_loss'
MASK = 'Loss/BoxClassifierLoss/mask_loss'
# Own; the reference has no keypoint head.
KEYPOINTS = 'Loss/BoxClassifierLoss/keypoint_loss'

# The names in NVIDIA's Mask R-CNN, for readers of DLLogger's files.
NVIDIA_NAMES = {
    RPN_LOCALIZATION: 'rpn_box_loss',
    RPN_OBJECTNESS: 'rpn_score_loss',
    BOX_LOCALIZATION: 'fast_rcnn_box_loss',
    BOX_CLASSIFICATION: 'fast_rcnn_class_loss',
    MASK: 'mask_rcnn_loss',
}


def numbered(name: str, number: int) -> str:
    """Returns the name of something of one box stage of a cascade; the first stage has no number.

    Args:
      name: that of the first stage.
      number: the number of the stage, from 1.
    """
    return name if number == 1 else f'{name}_{number}'


def of_parts(*, box_stages: int = 1, masks: bool = False, keypoints: bool = False) -> list[str]:
    """Returns the names of the losses of a detector.

    Args:
      box_stages: number of stages that classify and refine boxes.
      masks: whether masks are predicted.
      keypoints: whether keypoints are predicted.
    """
    names = [RPN_LOCALIZATION, RPN_OBJECTNESS]
    for number in range(1, box_stages + 1):
        names += [numbered(name, number) for name in (BOX_LOCALIZATION, BOX_CLASSIFICATION)]
    return [*names, *[MASK] * masks, *[KEYPOINTS] * keypoints]
