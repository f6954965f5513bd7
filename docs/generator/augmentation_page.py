"""Writes docs/augmentation.md and its pictures from the schema and the table of steps.

    python docs/generator/augmentation_page.py

`augmentation_page.md` in this folder is the frame of the page. `--text` leaves the pictures as they
are.
"""

import pathlib
import re
from collections.abc import Iterator

import click
import numpy as np
import scenes
import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from PIL import Image

from object_detection.builders import preprocessor_builder
from object_detection.config import plugins, ranges
from object_detection.core.example_fields import OBJECT_FIELDS
from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation import choice
from object_detection.data.objects import Example
from object_detection.protos.preprocessor_pb2 import PreprocessingStep
from object_detection.visualization import drawing

FOLDER = pathlib.Path(__file__).resolve().parent
DOCS = FOLDER.parent
PAGE = DOCS / 'augmentation.md'
PICTURES = DOCS / 'pictures' / 'augmentation'
SCHEMA = DOCS.parent / 'object_detection' / 'protos' / 'preprocessor.proto'

# Fields in the examples of the page: values that fit the small scenes of the pictures.
FIELDS = preprocessor_builder.FIELDS | {
    'copy_paste': 'object_probability: 0.7',
    'gaussian_blur': 'min_sigma: 0.5 max_sigma: 2',
    'large_scale_jitter': 'height: 108 width: 144 min_scale: 0.5',
    'mosaic': 'height: 108 width: 144',
    'motion_blur': 'min_length: 5 max_length: 9',
    'one_of': (
        'steps { random_rotation90 { probability: 1 } } '
        'steps { random_black_patches { probability: 1 } } '
        'steps { rgb_to_gray {} } '
        'weights: [2, 1, 1]'
    ),
    'random_absolute_pad_image': 'max_height_padding: 60 max_width_padding: 60',
    'random_adjust_contrast': 'min_delta: 0.5 max_delta: 1.5',
    'random_adjust_saturation': 'min_delta: 0.3 max_delta: 1.7',
    'random_downscale_to_target_pixels': 'min_target_pixels: 4000 max_target_pixels: 12000',
    'random_horizontal_flip': 'keypoint_flip_permutation: [0, 2, 1, 4, 3]',
    'random_jitter_boxes': 'ratio: 0.3',
    'random_jpeg_quality': 'min_jpeg_quality: 1 max_jpeg_quality: 20',
    'random_patch_gaussian': (
        'min_patch_size: 30 max_patch_size: 90 min_gaussian_stddev: 0.1 max_gaussian_stddev: 0.5'
    ),
    'random_resize_method': 'target_height: 100 target_width: 100',
    'random_scale_crop_and_pad_to_square': 'output_size: 128 scale_min: 0.5',
    'random_square_crop_by_scale': 'max_border: 32',
    'random_vertical_flip': 'keypoint_flip_permutation: [0, 1, 2, 3, 4]',
    'resize_image': 'new_height: 100 new_width: 100',
    'small_object_crop': 'small_area: 0.04',
}
# Steps without a picture, as they change neither the image nor what is drawn of its objects.
INVISIBLE = ('convert_class_logits_to_softmax',)

# Numbers of options and fields that the TensorFlow Object Detection API does not have.
_FIRST_OWN_NUMBER = 1000
# The site makes this link one to its page about the file.
_FIELDS = '../object_detection/protos/preprocessor.proto'
_URL = re.compile(r'https://[\w./-]+\w')
_CELL = 144
_DRAWS = 3
_SEEDS = 20
# As many as the step with the most of them needs.
_MAX_PARTNERS = 3
_JPEG_QUALITY = 85


def comments(schema: str) -> dict[str, str]:
    """Returns the comment above each message, field, enum and value of a .proto file, by name.

    Names are those of descriptors without the package, such as OneOf.weights; those of the values
    of an enum begin with the enum's.
    """
    found: dict[str, str] = {}
    scopes: list[str] = []
    comment: list[str] = []
    for line in map(str.strip, schema.splitlines()):
        if line.startswith('//'):
            comment.append(line.removeprefix('//').strip())
            continue
        block = re.match(r'(message|enum|oneof) (\w+) \{', line)
        field = re.match(r'(?:(?:optional|repeated) )?(?:[\w.]+ )?(\w+) = \d+', line)
        if block or field:
            # The fields of a oneof belong to its message.
            name = block[2] if block else field[1]
            is_oneof = bool(block) and block[1] == 'oneof'
            found['.'.join([*filter(None, scopes), name])] = ' '.join(comment)
            if block and not line.endswith('}'):
                scopes.append('' if is_oneof else name)
        elif line == '}':
            scopes.pop()
        comment = []
    return found


class Page:
    """The text of the page.

    Args:
      schema: the text of preprocessor.proto.
    """

    def __init__(self, schema: str):
        self._comments = comments(schema)
        options = PreprocessingStep.DESCRIPTOR.oneofs_by_name['preprocessing_step'].fields
        self._options = {option.name: option for option in options}

    def text(self) -> str:
        """Returns the whole page."""
        kinds = preprocessor_builder.kinds()
        of_reference = [k for k in kinds if self._options[k].number < _FIRST_OWN_NUMBER]
        own = [k for k in kinds if self._options[k].number >= _FIRST_OWN_NUMBER]
        parts = {
            'number_of_reference': str(len(of_reference)),
            'number_of_own': str(len(own)),
            'sections_of_reference': '\n\n'.join(map(self._section, of_reference)),
            'sections_of_own': '\n\n'.join(map(self._section, own)),
            'unsupported': '\n'.join(self._unsupported()) or 'All of them are supported.',
        }
        text = (FOLDER / 'augmentation_page.md').read_text()
        for name, part in parts.items():
            text = text.replace(f'<!-- {name} -->', part)
        return text

    def _comment(self, descriptor: Descriptor | FieldDescriptor) -> str:
        package = descriptor.file.package
        return self._comments[descriptor.full_name.removeprefix(f'{package}.')]

    def _section(self, kind: str) -> str:
        option = self._options[kind]
        message = option.message_type
        texts = [self._comment(option), self._comment(message)]
        urls = dict.fromkeys(url for text in texts for url in _URL.findall(text))
        links = [f'[paper]({url})' for url in urls]
        if message.fields:
            links.insert(0, f'[fields]({_FIELDS}#{message.name})')
        # One of them: they say nearly the same.
        what = max(map(_without_links, texts), key=lambda text: len(text.split())).rstrip('.')
        lines = [f'### {kind}', '', what + (f' ({", ".join(links)}).' if links else '.')]
        if kind not in INVISIBLE:
            lines += ['', f'![{kind}]({PICTURES.relative_to(DOCS)}/{kind}.jpg)']
        return '\n'.join([*lines, *_example(kind)])

    def _unsupported(self) -> Iterator[str]:
        for kind, option in self._options.items():
            if kind not in (*preprocessor_builder.kinds(), plugins.FIELD):
                reason = ranges.options(option).refused
                what = _without_links(self._comment(option))
                yield f'- `{kind}`: {what} Not supported: {reason}.'


def _without_links(text: str) -> str:
    """Removes links, and what is in brackets with a link alone."""
    text = re.sub(rf' \({_URL.pattern}\)', '', text)
    return re.sub(rf'(?:,| of)? {_URL.pattern}', '', text)


def _example(kind: str) -> list[str]:
    if not FIELDS.get(kind):
        return []
    step = preprocessor_builder.build_sample_steps(kind, FIELDS)
    text = text_format.MessageToString(step, use_short_repeated_primitives=True)
    # A message without fields takes one line.
    lines = re.sub(r'\{\s*\}', '{}', text).splitlines()
    return ['', '```textproto', *lines, '```']


def draw(kind: str) -> np.ndarray:
    """Draws a scene, and different results that a step makes of it."""
    config = preprocessor_builder.build_sample_steps(kind, FIELDS)
    original, *others = map(scenes.example, range(1 + _MAX_PARTNERS))
    if preprocessor_builder.build_all([config]).label_steps:
        classes = tf.argmax(original[F.GROUNDTRUTH_CLASSES], axis=1) + 1
        original = {**original, F.GROUNDTRUTH_CLASSES: classes}
    step = preprocessor_builder.build(config)
    drawn = [original]
    for seed in range(_SEEDS):
        result = choice.apply(step, original, tf.constant([0, seed]), others)
        if all(_differ(result, other) for other in drawn):
            drawn.append(result)
        if len(drawn) > _DRAWS:
            break
    scale = _CELL / max(max(example[F.IMAGE].shape) for example in drawn)
    no_names = dict.fromkeys(range(1, 1 + len(scenes.CLASSES)), '')
    pictures = [drawing.draw(example, no_names, scale=scale, line_thickness=1) for example in drawn]
    return drawing.row(pictures, _CELL)


def _differ(example: Example, other: Example) -> bool:
    names = [name for name in (F.IMAGE, *OBJECT_FIELDS) if name in example]
    return any(
        not np.array_equal(example[name], other[name], equal_nan=name == F.GROUNDTRUTH_KEYPOINTS)
        for name in names
    )


def picture_names() -> list[str]:
    """Returns the names of the files of all pictures."""
    return [f'{kind}.jpg' for kind in preprocessor_builder.kinds() if kind not in INVISIBLE]


@click.command(help=__doc__)
@click.option('--text', 'text_only', is_flag=True, help='Write the text alone.')
def main(text_only: bool) -> None:
    PAGE.write_text(Page(SCHEMA.read_text()).text())
    if text_only:
        return
    PICTURES.mkdir(parents=True, exist_ok=True)
    for path in PICTURES.glob('*.jpg'):
        if path.name not in picture_names():
            path.unlink()
    for name in picture_names():
        picture = Image.fromarray(draw(name.removesuffix('.jpg')))
        picture.save(PICTURES / name, quality=_JPEG_QUALITY)


if __name__ == '__main__':
    main()
