"""Every step with values that show what it does."""

from collections.abc import Mapping

from google.protobuf import text_format

from object_detection.builders import preprocessor_builder
from object_detection.protos.preprocessor_pb2 import PreprocessingStep

# Fields of the steps that need some, or whose defaults change few images or none.
FIELDS: dict[str, str] = {
    'adjust_gamma': 'gamma: 1.5',
    'drop_label_probabilistically': 'label: 1 drop_probability: 0.5',
    'motion_blur': 'min_length: 9 max_length: 15',
    'normalize_image': (
        'original_minval: 50 original_maxval: 200 target_minval: 0 target_maxval: 255'
    ),
    'one_of': ('steps { random_rotation90 { probability: 1 } } steps { random_black_patches {} } '),
    'random_absolute_pad_image': 'max_height_padding: 100 max_width_padding: 100',
    'random_adjust_hue': 'max_delta: 0.1',
    'random_affine': 'max_degrees: 15 max_shear_degrees: 5',
    'random_resize_method': 'target_height: 300 target_width: 300',
    'random_rgb_to_gray': 'probability: 0.5',
    'random_self_concat_image': (
        'concat_vertical_probability: 0.5 concat_horizontal_probability: 0.5'
    ),
    'remap_labels': 'original_labels: 2 original_labels: 3 new_label: 1',
    'resize_image': 'new_height: 300 new_width: 300',
    'subtract_channel_mean': 'means: [40, 40, 40]',
}


def build(kind: str, fields: Mapping[str, str] = FIELDS) -> PreprocessingStep:
    """Returns the step `kind` with its fields in `fields`, a table of protobuf texts."""
    return text_format.Parse(f'{kind} {{ {fields.get(kind, "")} }}', PreprocessingStep())


def kinds() -> list[str]:
    """Returns the names of all steps that can be built, in the order of their numbers."""
    options = PreprocessingStep.DESCRIPTOR.oneofs_by_name['preprocessing_step'].fields
    numbers = {field.name: field.number for field in options}
    return sorted(preprocessor_builder.BUILDERS, key=numbers.__getitem__)
