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
# Stage of the model -> the losses that it adds.
_OF_STAGE = {
    1: (RPN_LOCALIZATION, RPN_OBJECTNESS),
    2: (BOX_LOCALIZATION, BOX_CLASSIFICATION),
    3: (MASK,),
}


def of_stages(number_of_stages: int, *, keypoints: bool = False) -> list[str]:
    """Returns the names of the losses of the first 1 to 3 stages.

    Args:
      number_of_stages: the number of stages.
      keypoints: whether keypoints are predicted.
    """
    names = [
        name for stage, names in _OF_STAGE.items() if stage <= number_of_stages for name in names
    ]
    return [*names, KEYPOINTS] if keypoints else names
