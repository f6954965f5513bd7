"""The names of the losses of single-shot detectors, those of the reference; loads no TensorFlow."""

LOCALIZATION = 'Loss/localization_loss'
CLASSIFICATION = 'Loss/classification_loss'
CENTERNESS = 'Loss/centerness_loss'  # Own, of FCOS.

NAMES = (LOCALIZATION, CLASSIFICATION)
