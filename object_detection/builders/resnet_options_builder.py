"""Builds what messages of feature extractors say of a ResNet: its variant, norms and images."""

from typing import Any

from google.protobuf.message import Message

from object_detection.errors import expected
from object_detection.models.backbones.resnet_v1 import Padding
from object_detection.models.image_channels import RGB
from object_detection.models.image_values import Preprocess


def build(config: Message) -> dict[str, Any]:
    """Returns `ExtractorOptions.resnet`: the fields that the message of an extractor sets, by name.

    Raises:
      UserError: if `preprocess` has other than three numbers.
    """
    found = {
        name: getattr(config, name)
        for name in ('stride_in_1x1', 'frozen_stages', 'freeze_affine')
        if config.HasField(name)
    }
    if config.HasField('padding_mode'):
        modes = config.DESCRIPTOR.fields_by_name['padding_mode'].enum_type
        found['padding_mode'] = Padding[modes.values_by_number[config.padding_mode].name]
    if config.HasField('preprocess'):
        found['preprocess'] = preprocess(config.preprocess)
    return found


def preprocess(config: Message) -> Preprocess:
    """Returns the normalization that an ImagePreprocessing describes."""
    lists = {name: tuple(getattr(config, name)) for name in ('mean', 'std')}
    for name, values in lists.items():
        if len(values) not in (0, RGB):
            raise expected(f'preprocess.{name}', 'three numbers: red, green, blue', list(values))
    return Preprocess(
        scale=config.scale, **{name: values for name, values in lists.items() if values}
    )
